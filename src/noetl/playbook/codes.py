"""Every diagnostic of the language: its severity, what it says and what it advises.

A code never changes its meaning. New ones are added at the end of their hundred.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["CODES", "Code", "Severity"]

Severity = Literal["error", "warning"]


class Code(NamedTuple):
    """One diagnostic. `message` and `hint` have places in braces that the finder fills."""

    severity: Severity
    about: str
    message: str
    hint: str


_SHAPE = ("{field} must be {shape}", "shapes: {field}, {shape}")
_CHOICE = ("{field}: '{value}' is not one of {allowed}", "choose one of these")
_LACK = ("{what} has no '{field}'", "add {field}: {sample}")
_BAN = ("{what}: key '{key}' is not allowed", "{key} → {instead}")
_TWICE = ("{what} '{name}' is defined twice", "rename or remove one")
_UNKNOWN = ("{what} '{name}' is not known", "did you mean '{near}'?")
_BOUND = ("{field}: '{value}' must be {bound}", "for example {sample}; a template is checked after rendering")

_ERRORS: dict[str, tuple[str, tuple[str, str]]] = {
    "NTL-101": ("YAML syntax", ("not valid YAML: {detail}", "fix the syntax here")),
    "NTL-102": ("section or field", _SHAPE),
    "NTL-103": ("apiVersion", _CHOICE),
    "NTL-104": ("kind", _CHOICE),
    "NTL-105": ("metadata name", _LACK),
    "NTL-106": ("metadata path",
                ("metadata.path '{value}' contains '{char}'", "use letters, digits, _ - . and /")),
    "NTL-107": ("workflow", ("workflow is missing or empty", "add at least one step")),
    "NTL-108": ("root vars", _BAN),
    "NTL-109": ("mapping key", _TWICE),
    "NTL-110": ("executor", _CHOICE),
    "NTL-111": ("executor step", _UNKNOWN),
    "NTL-112": ("workbook entry", _TWICE),
    "NTL-201": ("step name", _LACK),
    "NTL-202": ("step", _TWICE),
    "NTL-203": ("step key", _BAN),
    "NTL-204": ("tool", _SHAPE),
    "NTL-205": ("next", _SHAPE),
    "NTL-206": ("arc step", _LACK),
    "NTL-207": ("arc key", _BAN),
    "NTL-208": ("arc target", _UNKNOWN),
    "NTL-209": ("next.spec", _CHOICE),
    "NTL-210": ("admission", ("admit of step '{step}' is malformed: {detail}",
                              "rules: [{{when, then: {{allow}}}}, {{else: {{then: {{allow}}}}}}]")),
    "NTL-211": ("set key", ("cannot assign '{key}'", "use ctx., iter. or step.")),
    "NTL-212": ("duration", _BOUND),
    "NTL-301": ("loop iterator", _LACK),
    "NTL-302": ("loop source", ("loop of step '{step}' needs exactly one of in, cursor", "add or remove one")),
    "NTL-303": ("loop mode", _CHOICE),
    "NTL-304": ("cursor mode", ("mode cursor and the cursor block need each other", "set both or neither")),
    "NTL-305": ("max_in_flight", _BOUND),
    "NTL-306": ("loop policy", _CHOICE),
    "NTL-307": ("frame", ("frame is allowed in cursor loops and data stages only", "remove frame")),
    "NTL-308": ("frame field", _BOUND),
    "NTL-309": ("cursor field", ("cursor.{field} is missing or unsupported",
                                 "kind: postgres, auth and claim are required")),
    "NTL-310": ("iterator name", ("iterator '{name}' is reserved or not an identifier", "choose another name")),
    "NTL-401": ("task kind", _LACK),
    "NTL-402": ("tool kind", _UNKNOWN),
    "NTL-403": ("eval on a tool", _BAN),
    "NTL-404": ("task of a pipeline", _TWICE),
    "NTL-405": ("spec.policy", _SHAPE),
    "NTL-406": ("expr in a rule", _BAN),
    "NTL-407": ("rule", ("rule has none of when, else, then", "write {{when, then}} or {{else: {{then}}}}")),
    "NTL-408": ("then do", _LACK),
    "NTL-409": ("do", _CHOICE),
    "NTL-410": ("jump to", _LACK),
    "NTL-411": ("jump target", _UNKNOWN),
    "NTL-412": ("attempts", _BOUND),
    "NTL-413": ("backoff", _CHOICE),
    "NTL-414": ("delay", _BOUND),
    "NTL-501": ("template syntax", ("template in {field}: {detail}", "check braces, quotes and filter names")),
    "NTL-502": ("connection fields in a task", _BAN),
    "NTL-503": ("workbook entry", _UNKNOWN),
    "NTL-504": ("script source", _CHOICE),
    "NTL-601": ("keychain name or kind", _LACK),
    "NTL-602": ("keychain kind", _UNKNOWN),
    "NTL-603": ("keychain entry", _TWICE),
    "NTL-604": ("keychain scope", _CHOICE),
    "NTL-701": ("subscription", _CHOICE),
    "NTL-702": ("subscription source", ("source {source} needs {fields}",
                "nats: stream, consumer; kafka: topic, group; pubsub: subscription")),
    "NTL-703": ("push", ("push needs ingress.gateway_path and ingress.verify",
                         "verify types: hmac_sha256, bearer, pubsub_oidc")),
    "NTL-704": ("directive", ("directive '{header}' on {controls} needs {field}",
                              "list the values that may be chosen")),
    "NTL-705": ("spool", ("spool.{field}: {detail}", "see section 15")),
    "NTL-706": ("workflow in a subscription", ("a Subscription has no workflow",
                                               "put the work in the playbook it dispatches")),
    "NTL-801": ("fan-out field", ("{field} is allowed in fan-out loops only",
                                  "set mode: fanout or remove {field}")),
    "NTL-802": ("fan-out split", ("loop of step '{step}' takes one of partitions, by", "remove one")),
    "NTL-803": ("partitions", _BOUND),
    "NTL-804": ("loop engine", _CHOICE),
    "NTL-805": ("columns", _SHAPE),
    "NTL-806": ("engine and mode", ("engine '{engine}' cannot run a loop of mode {mode}",
                                    "spark runs cursor and fanout; leave engine out")),
    "NTL-810": ("reduce from", _LACK),
    "NTL-811": ("reduce source", _UNKNOWN),
    "NTL-812": ("reduce source", ("step '{step}' has no frames to reduce",
                                  "reduce from a cursor or fan-out loop, a reduce, a spark or a transfer task")),
    "NTL-813": ("reduce and loop", ("step '{step}' has both loop and reduce", "make them two steps")),
    "NTL-820": ("spark source", ("spark task '{task}' has both sql and code", "remove one")),
    "NTL-821": ("spark inputs", _SHAPE),
    "NTL-822": ("spark input", ("input '{name}' needs exactly one of {allowed}", "add or remove one")),
    "NTL-823": ("spark input name", ("input '{name}' is not an identifier",
                                     "it names a view: choose another name")),
    "NTL-824": ("expectation", _LACK),
    "NTL-825": ("expectation on_fail", _CHOICE),
    "NTL-826": ("expectation", _TWICE),
    "NTL-827": ("spark output", _CHOICE),
    "NTL-830": ("transfer side", _CHOICE),
    "NTL-831": ("transfer mode", _CHOICE),
    "NTL-832": ("transfer number", _BOUND),
}  # fmt: skip

_WARNINGS: dict[str, tuple[str, tuple[str, str]]] = {
    "NTL-901": ("unknown root key", ("root key '{key}' is not known and is ignored", "ignored")),
    "NTL-902": ("root spec", ("root key 'spec' is an old form; move it to workload",
                              "readable as the name spec")),
    "NTL-903": ("apiVersion v10", ("apiVersion noetl.io/v10 is read as noetl.io/v2", "as noetl.io/v2")),
    "NTL-904": ("workbook mapping", ("workbook should be a list of entries", "as the list")),
    "NTL-905": ("outer slash", ("metadata.path is stored as '{path}'", "stripped")),
    "NTL-910": ("step without tool", ("step '{step}' has no tool and does nothing", "kind: noop")),
    "NTL-911": ("unknown step key", ("step '{step}': key '{key}' is ignored; did you mean tool.{key}?", "ignored")),
    "NTL-912": ("arc cond", ("arc key 'cond' is an old form of when", "when: \"{{{{ {expr} }}}}\"")),
    "NTL-913": ("bare key in set", ("'{key}' is written to ctx; say ctx.{key}", "writes ctx.{key}")),
    "NTL-914": ("response", ("'{name}' is an old name of the result", "the raw result")),
    "NTL-920": ("backoff fixed", ("backoff 'fixed' means a constant delay; give delay alone", "constant delay")),
    "NTL-921": ("else without then", ("else should hold then", "else: {{then: {{…}}}}")),
    "NTL-922": ("rule without when", ("rule without when always matches", "always true")),
    "NTL-923": ("tool field in spec", ("move '{key}' from tool.spec to tool", "lifted to the tool")),
    "NTL-924": ("args", ("'args' is an old form of input", "input, below input")),
    "NTL-925": ("credential", ("'credential' is an old form of auth", "auth")),
    "NTL-926": ("payload", ("'payload' is an old form of input", "input, below input")),
    "NTL-927": ("retry", ("'retry' is an old form of spec.policy.rules",
                          "one retry rule (default: on retryable errors) when there are no rules")),
    "NTL-928": ("ignored tool key", ("tool key '{key}' is ignored", "ignored")),
    "NTL-929": ("misplaced tool key", ("move '{key}' to {place}", "moved to their place")),
    "NTL-930": ("kind agent", ("kind 'agent' is retired; call a playbook",
                               "accepted; fails with KIND_UNAVAILABLE when run")),
    "NTL-931": ("implicit data", ("'data' is bound implicitly; pass it as input",
                                  "the name data, else the previous result")),
    "NTL-932": ("store object", ("store kind 'object' is read as disk", "disk")),
    "NTL-940": ("keychain type", ("'type' is an old form of kind", "kind")),
    "NTL-941": ("keychain kind", ("keychain kind '{value}' is read as {kind}", "{kind}")),
    "NTL-950": ("unreadable name", ("{what} '{name}' cannot be read from templates",
                                    "use letters, digits and _, and no reserved name")),
    "NTL-951": ("missing tool field", ("{kind} task '{task}' has no {field} and will fail when it runs",
                                       "add {field}")),
    "NTL-952": ("rule after else", ("rule is never reached after else", "move it above else or remove it")),
    "NTL-953": ("parallel without limit", ("parallel loop without max_in_flight runs one at a time",
                                           "add max_in_flight: 4")),
    "NTL-954": ("template used as text", ("template in {field} cannot be parsed and is used as text",
                                          "check braces, quotes and filter names")),
    "NTL-955": ("unreachable step", ("step '{step}' cannot be reached", "add an arc to it or remove it")),
    "NTL-956": ("unknown key", ("{what}: key '{key}' is not known and is ignored", "did you mean '{near}'?")),
}  # fmt: skip

CODES: dict[str, Code] = {
    **{name: Code("error", about, *texts) for name, (about, texts) in _ERRORS.items()},
    **{name: Code("warning", about, *texts) for name, (about, texts) in _WARNINGS.items()},
}
