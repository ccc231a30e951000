#!/usr/bin/env python3
"""Checks the manifests of this folder against the schemas of Kubernetes and models of the Prometheus Operator's definitions.

    pip install -r packaging/kubernetes/requirements.txt && packaging/kubernetes/check.py

Exits with 77 where these packages are missing.
"""
import pathlib
import sys

try:
    import kubernetes_validate
    import yaml
    from cloudcoil.models.prometheus_operator import v1 as operator
except ImportError as error:
    print(f"{error}: pip install -r packaging/kubernetes/requirements.txt")
    sys.exit(77)


def documents(name):
    return [one for one in yaml.safe_load_all((pathlib.Path(__file__).parent / name).read_text()) if one]


for document in documents("pilotlight.yaml") + documents("experiment.yaml"):
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    print(f"{document['kind']}: valid for Kubernetes {kubernetes_validate.latest_version()}")

# The policy selects the server's pods and admits their ports only.
kinds = {one["kind"]: one["spec"] for one in documents("pilotlight.yaml") if "spec" in one}
policy, pod = kinds["NetworkPolicy"], kinds["StatefulSet"]["template"]
[container] = pod["spec"]["containers"]
[rule] = policy["ingress"]
assert policy["podSelector"]["matchLabels"] == pod["metadata"]["labels"], policy
assert policy["policyTypes"] == ["Ingress", "Egress"] and policy["egress"] == [], policy
assert [port["port"] for port in rule["ports"]] == [port["containerPort"] for port in container["ports"]], rule

# Each pod of the Job has its share: as many shares as completions, and the index, which Kubernetes counts from 0, plus 1.
[job] = [one for one in documents("experiment.yaml") if one["kind"] == "Job"]
[container] = job["spec"]["template"]["spec"]["containers"]
assert container["env"] == [{"name": "SHARES", "value": str(job["spec"]["completions"])}], container["env"]
assert '--shard "$((JOB_COMPLETION_INDEX + 1))/$SHARES"' in container["args"][0], container["args"]

for document in documents("servicemonitor.yaml"):
    # Fields that the models do not have are missing after the round trip.
    back = operator.ServiceMonitor.model_validate(document).model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert back == document, f"{document['kind']}: has fields that the definition has not:\n{document}\n{back}"
    print(f"{document['kind']}: valid for the Operator's definition")
