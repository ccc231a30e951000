"""Results of `pilotlab` as a `pandas` data frame, or as a `pyarrow` table.

```python
import pilotlab

frame = pilotlab.read("papers/sandman/results/fig3")
frame.groupby(["rate", "policy"]).cpu_power_w.mean()
```
"""

from .errors import PilotlabError, RefusedError
from .table import read, read_table

__all__ = ["PilotlabError", "RefusedError", "read", "read_table"]
