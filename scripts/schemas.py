"""Schemas that kubeconform can read, for scripts/setup.

kubernetes FROM TO: one self-contained file for each kind that the chart has.
operator: the schema on standard input.
Every schema rejects unknown keys.
"""

import json
import pathlib
import sys

KINDS = {
    "configmap-v1": "core.v1.ConfigMap",
    "daemonset-apps-v1": "apps.v1.DaemonSet",
    "networkpolicy-networking-v1": "networking.v1.NetworkPolicy",
    "service-v1": "core.v1.Service",
}


def kubernetes(source: str, target: str) -> None:
    text = pathlib.Path(source, "_definitions.json").read_text()
    text = text.replace('"/api/_definitions.json#', '"#')
    definitions = strict(json.loads(text.replace('"_definitions.json#', '"#'))["$defs"])
    for name, kind in KINDS.items():
        schema = {"$ref": f"#/$defs/io.k8s.api.{kind}", "$defs": definitions}
        pathlib.Path(target, f"{name}.json").write_text(json.dumps(schema))


def strict(part: object) -> object:
    if isinstance(part, dict):
        if "properties" in part and not part.get("x-kubernetes-preserve-unknown-fields"):
            part.setdefault("additionalProperties", False)
        part = {key: strict(value) for key, value in part.items()}
    elif isinstance(part, list):
        part = [strict(value) for value in part]
    return part


match sys.argv[1:]:
    case ["kubernetes", source, target]:
        kubernetes(source, target)
    case ["operator"]:
        schema = strict(json.load(sys.stdin))
        # The API server defines the fields of metadata.
        schema["properties"]["metadata"] = {"type": "object"}
        json.dump(schema, sys.stdout)
