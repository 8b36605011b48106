"""Generated names of every form, with the text that breaks naive encoders: separators, escapes, any Unicode."""

from __future__ import annotations

from hypothesis import strategies as st

from noetl.kernel.names import (
    FrameCoordinates,
    InfrastructureName,
    LegacyResult,
    Name,
    PayloadName,
    ResourceName,
    ResultCoordinates,
    ResultName,
)

_NASTY = (
    st.sampled_from("a~%/@:-*>| \\=0\xe9\u2003\u8868\U0001f680")
    | st.sampled_from(["a.b", "a~1", "~1.2", "x.", ".x", "...", "%2e%2e", "%25", "a/b", "a@b", "?q", "#f", "a b"])
    | st.sampled_from(["e\u0301", "\u202ex", "results", "sha256", "worker", "sparse"])
)

# What a step or task may be called: any text that UTF-8 can hold.
labels = _NASTY | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
segments = (_NASTY | st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)).filter(
    lambda text: text not in {".", ".."}
)
tenants = segments.filter(lambda text: text not in {"tenant", "execution"})
numbers = st.integers(0, 3) | st.integers(0, 2**63 - 2)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)


def _is_plain(name: tuple[str, tuple[str, ...]]) -> bool:
    kind, path = name
    decimal = path[0].isascii() and path[0].isdigit()
    return not (kind == "results" and decimal) and not (kind == "payloads" and path[0] == "sha256")


_places = st.tuples(segments, st.lists(segments, min_size=1, max_size=4).map(tuple)).filter(_is_plain)


@st.composite
def resources(draw: st.DrawFn) -> ResourceName:
    kind, path = draw(_places)
    version = draw(st.none() | segments)
    return ResourceName(tenant=draw(tenants), project=draw(segments), kind=kind, path=path, version=version)


@st.composite
def coordinates(draw: st.DrawFn) -> ResultCoordinates:
    task = draw(st.none() | labels)
    return ResultCoordinates(
        tenant=draw(tenants),
        project=draw(segments),
        execution_id=draw(numbers),
        step=draw(labels),
        run=draw(numbers),
        frame=draw(st.none() | frames),
        row=draw(st.none() | numbers),
        attempt=draw(numbers),
        task=task,
        visit=None if task is None else draw(numbers),
        version=draw(st.just("v1") | segments),
    )


frames = st.builds(FrameCoordinates, epoch=numbers, slot=numbers, index=numbers)
results = st.builds(ResultName, coordinates())
payloads = st.builds(PayloadName, tenant=tenants, project=segments, sha256=digests)
infrastructure = st.builds(
    InfrastructureName,
    tenant=tenants,
    **{key: st.none() | segments for key in ("org", "region", "zone", "cluster", "node", "process", "worker")},
)
_older_segments = st.text("abzAZ09._~!$&'()*+,;=:-", min_size=1, max_size=8).filter(
    lambda text: text not in {".", ".."}
)
_older_spellings = _older_segments | st.sampled_from(["%7E", "%2f", "a%20b", "%C3%A9", "a%2Eb", "*", "%25"])
older_results = st.builds(
    lambda execution, step, ref: LegacyResult(f"noetl://execution/{execution}/result/{step}/{'/'.join(ref)}"),
    _older_spellings,
    _older_spellings,
    st.lists(_older_spellings, min_size=1, max_size=3),
)
names: st.SearchStrategy[Name] = resources() | results | payloads | infrastructure | older_results
