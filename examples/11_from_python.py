"""A playbook built, run and proven from Python: as a script, or cell by cell in a notebook.

    python examples/11_from_python.py

A tool of one's own, a playbook made of it, its result as a table, and the proof that the log is what was written.
"""

# %% A function becomes a tool: its parameters are the task's input, what it returns is the result.
import noetl


@noetl.tool("grade", side_effecting=False)
def grade(score: int) -> dict[str, object]:
    return {"score": score, "grade": "pass" if score >= 50 else "fail"}


# %% A playbook, written in Python. It is valid by the same rules as a file.
playbook = (
    noetl.Playbook.builder("grades")
    .workload(scores=[71, 38, 90])
    .step("grade")
    .loop("{{ scores }}", "score", mode="parallel", max_in_flight=4)
    .tool("grade", input={"score": "{{ score }}"})
    .next("count")
    .step("count")
    .tool(
        "python",
        input={"rows": "{{ grade.results }}"},
        code="result = {'passed': sum(row['grade'] == 'pass' for row in rows)}",
    )
    .to_yaml()
)

# %% Run it here. Keywords are the workload. In a notebook `run` alone shows a card.
run = noetl.run(playbook, scores=[71, 38, 90, 55], check=True)
print(run.status, run.result)

# %% What a step has left behind, as an Arrow table (or .df() with pandas).
print(run.step("grade").table().to_pylist())

# %% The state as it was after the first ten events, and the proof.
tenth = list(run.events())[9]
print("then:", run.replay(at=tenth.event_id).status, "now:", run.replay().status)
print("verified:", run.verify().ok)
