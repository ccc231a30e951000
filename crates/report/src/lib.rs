//! Result tables (CSV, JSON, Parquet) and self-contained HTML reports.
