"""Every shipped method × kind of field × codec keeps every rule: learns an identity task, survives save and load, …"""

import time

import pytest

from genplan.conformance.codec import check_codec
from genplan.conformance.identity import CODECS, KINDS
from genplan.conformance.method import acts_the_same_in_a_fresh_process, check_method, make_case
from genplan.models import codecs
from genplan.planners import METHODS

MAX_SECONDS = 120  # of one core, for all combinations
PRIVILEGED = "it says privileged = True"
STATES_SHOWN = [("grid", "identity"), ("category", "identity")]  # with discrete actions: a step model can be learnt
CHUNK_CODECS = [name for name, codec in codecs.CODECS.items() if issubclass(codec, codecs.ChunkCodes)]
CASES = [(method, kind, codec) for method in METHODS for kind in KINDS for codec in CODECS
         if ((kind, codec) in STATES_SHOWN or not method.endswith("-step"))
         and (not METHODS[method].continuous or (codec == "bins" and kind != "grid"))]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def measured():
    start = time.process_time()
    yield
    seconds = time.process_time() - start
    print(f"\n{len(CASES)} combinations of method, kind and codec: {seconds:.0f} CPU-seconds")
    assert seconds < MAX_SECONDS


@pytest.mark.parametrize(("method", "kind", "codec"), CASES)
def test_every_rule_is_kept(method, kind, codec):
    findings = list(check_method(method, [kind], [codec], fresh_process=False))
    assert len(findings) == 10
    assert [str(one) for one in findings if one.outcome == "broken"] == []
    assert {one.reason for one in findings if one.outcome == "skipped"} <= {PRIVILEGED}


@pytest.mark.parametrize("method", ["GenPlan-M", "GenPlan-U", "VQ-BeT"])
@pytest.mark.parametrize("codec", CHUNK_CODECS)
def test_every_rule_is_kept_with_codes_of_chunks(method, codec):
    findings = list(check_method(method, ["vector"], [codec], fresh_process=method == "GenPlan-M"))
    assert len(findings) == 10 + (method == "GenPlan-M")
    assert [str(one) for one in findings if one.outcome == "broken"] == []
    assert {one.reason for one in findings if one.outcome == "skipped"} <= {PRIVILEGED}


def test_every_combination_acts_the_same_in_a_fresh_process():
    """Initial weights do: those of the other tests may be in another worker."""
    acts_the_same_in_a_fresh_process([make_case(*case) for case in CASES])


@pytest.mark.parametrize("method", ["BC-step", "LEAP-step"])
def test_methods_with_a_step_model_refuse_tasks_without_one(method):
    refused = [one for one in check_method(method, fresh_process=False) if one.rule == "is built"]
    assert len(refused) == len(KINDS) * len(CODECS) - len(STATES_SHOWN)
    assert all("use BC or LEAP-noGC" in one.reason for one in refused)


@pytest.mark.parametrize("name", codecs.CODECS)
def test_every_codec_keeps_every_rule(name):
    findings = list(check_codec(name))
    assert [str(one) for one in findings if one.outcome == "broken"] == []
    assert sum(one.outcome == "ok" for one in findings) >= 4
