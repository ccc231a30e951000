//! A page of the results: what an experiment gave, as tables and charts, from its folder alone.
