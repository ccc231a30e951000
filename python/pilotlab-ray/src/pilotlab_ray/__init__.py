"""Simulated experiments of `pilotlab` on a Ray cluster, or in a notebook on one machine, with the results as a `pyarrow` table.

```python
import pilotlab_ray

table = pilotlab_ray.run("papers/sandman/fig3.toml", out="fig3")
table = pilotlab_ray.read("fig3")
```
"""

from pilotlab import read_table as read

from .driver import run
from .errors import PilotlabError, RefusedError, ShareError

__all__ = ["PilotlabError", "RefusedError", "ShareError", "read", "run"]
