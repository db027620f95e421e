"""The plugin at every moment of a container's life, driven by a runtime over a real socket."""

from __future__ import annotations

import logging
import threading

import pytest

from nri_claim2core.agent.decide import Rules
from nri_claim2core.claims.effects import Effects, RefusalEffect
from nri_claim2core.model.envelope import Mode
from nri_claim2core.nri import Plugin, api
from nri_claim2core.nri.runner import Runner
from nri_claim2core.nri.runtime import PROFILES
from tests.agent.world import (
    CLAIM_A,
    CLAIM_B,
    DEVICE_A,
    DEVICE_B,
    OTHER_POD,
    POD,
    World,
    env_of,
)

ENV_A = env_of(CLAIM_A, "2-3")
ENV_B = env_of(CLAIM_B, "4-5")


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def cpu(container):
    return container.linux.resources.cpu


def create(world, runtime, *devices, env=None, **kwargs):
    """Create with the environment that the devices' specs give."""
    known = {DEVICE_A: ENV_A, DEVICE_B: ENV_B}
    env = [known[d] for d in devices] if env is None else env
    result = runtime.create_container(world.pod(), world.container(*devices, env=env, **kwargs))
    assert result.ok, result.error
    return result.container


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_a_claim_confines_on_every_runtime(tmp_path, profile):
    world = World(tmp_path, profile)
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A)
        # 2 CPUs of node 0 and nothing else asked for: 1024 shares for each.
        assert (cpu(made).cpus, cpu(made).mems, cpu(made).shares.value) == ("2-3", "0", 2048)
        world.kernel_says(made.id, "2-3")
        assert runtime.start_container(made.id).ok
        entry = world.book.get(made.id)
        assert str(entry.observed.cpus) == "2-3"
        assert entry.observed.when == "PostStartContainer"
        assert entry.violations == ()


def test_two_claims_unite_with_the_memory_nodes_of_both(world):
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A, DEVICE_B)
        assert (cpu(made).cpus, cpu(made).mems) == ("2-5", "0-1")


def test_a_spec_written_anew_counts_for_the_next_creation(world):
    with world.runtime() as runtime, world.running(runtime):
        assert cpu(create(world, runtime, DEVICE_A)).cpus == "2-3"
        assert cpu(create(world, runtime, DEVICE_A)).cpus == "2-3"
        world.tree.claim_file(CLAIM_A, "1-2")
        made = create(world, runtime, DEVICE_A, env=[env_of(CLAIM_A, "1-2")])
        assert cpu(made).cpus == "1-2"


def test_a_container_without_claims_is_not_touched(world):
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, cpus="0-7", shares=512)
        assert (cpu(made).cpus, cpu(made).mems, cpu(made).shares.value) == ("0-7", "", 512)
        assert dict(made.annotations) == {}


def test_a_cpu_request_keeps_its_shares(world):
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A, shares=1536)
        assert (cpu(made).cpus, cpu(made).shares.value) == ("2-3", 1536)


class MemoryDriver(Plugin):
    """Writes memory nodes and no CPUs, as the DRA driver for memory does."""

    def create_container(self, request, call):
        answer = api.CreateContainerResponse()
        answer.adjust.linux.resources.cpu.mems = "0"
        return answer


def test_memory_nodes_set_by_another_plugin_are_not_written_again(world):
    with world.runtime() as runtime:
        driver = Runner(MemoryDriver(), "memory", "00", socket_path=world.socket, environment={})
        thread = threading.Thread(target=driver.run)
        thread.start()
        try:
            runtime.wait_for_plugins(1)
            with world.running(runtime):
                made = create(world, runtime, DEVICE_A)
                assert (cpu(made).cpus, cpu(made).mems) == ("2-3", "0")
        finally:
            driver.stop()
            thread.join(10)


def test_every_update_is_answered_with_the_claims_cpus(world):
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A)
        runtime.start_container(made.id)
        runtime.update_cpuset(made.id, "0-7")
        assert cpu(runtime.container(made.id)).cpus == "2-3"
        # A resize says nothing about CPUs; the zeros it carries mean "unchanged".
        resized = api.LinuxResources()
        resized.memory.limit.value = 1 << 30
        runtime.update_container(made.id, resized)
        assert cpu(runtime.container(made.id)).cpus == "2-3"
        assert world.metrics.value("claim2core_cpusets_reasserted_total") == 1


def test_an_update_of_an_unclaimed_container_passes(world):
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime)
        runtime.start_container(made.id)
        runtime.update_cpuset(made.id, "0-1")
        assert cpu(runtime.container(made.id)).cpus == "0-1"


def test_kubelets_exclusive_cpus_join_the_envelope(world):
    world.tree.write(
        "/var/lib/kubelet/cpu_manager_state",
        '{"policyName":"static","defaultCpuSet":"0-5",'
        f'"entries":{{"{POD}":{{"main":"6-7"}}}},"checksum":0}}',
    )
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A, cpus="6-7", shares=2048)
        # 2-3 of the claim, 6-7 as kubelet gave them; shares stay kubelet's.
        assert (cpu(made).cpus, cpu(made).shares.value) == ("2-3,6-7", 2048)
        runtime.start_container(made.id)
        runtime.update_cpuset(made.id, "6-7")
        assert cpu(runtime.container(made.id)).cpus == "2-3,6-7"


def test_kubelets_exclusive_cpus_are_not_gone_while_its_state_cannot_be_read(world):
    state = "/var/lib/kubelet/cpu_manager_state"
    world.tree.write(
        state,
        '{"policyName":"static","defaultCpuSet":"0-5",'
        f'"entries":{{"{POD}":{{"main":"6-7"}}}},"checksum":0}}',
    )
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A, cpus="6-7", shares=2048)
        runtime.start_container(made.id)
        world.tree.write(state, '{"policyName":"sta')
        runtime.update_cpuset(made.id, "6-7")
        assert cpu(runtime.container(made.id)).cpus == "2-3,6-7"


def test_a_cpuset_set_by_somebody_else_is_left_alone(world):
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A, cpus="2-3,6")
        assert cpu(made).cpus == "2-3,6"
        assert world.book.get(made.id).envelope.findings == ()
        runtime.start_container(made.id)
        runtime.update_cpuset(made.id, "2-3,7")
        assert cpu(runtime.container(made.id)).cpus == "2-3,7"


def test_somebody_elses_cpuset_on_another_claim_is_reported(world):
    world.hold({CLAIM_A: [POD], CLAIM_B: [OTHER_POD]})
    with world.runtime() as runtime, world.running(runtime):
        other = world.container(DEVICE_B, env=[ENV_B], pod=OTHER_POD)
        assert runtime.create_container(world.pod(OTHER_POD), other).ok
        made = create(world, runtime, DEVICE_A, cpus="2-4")
        [finding] = world.book.get(made.id).envelope.findings
        assert finding.code == "C2C-ENV-14"
        assert CLAIM_B in finding.message


@pytest.mark.parametrize(
    ("cpus", "level"), [("2-4", "ERROR"), ("2-3,6", "INFO")], ids=["on B's CPUs", "apart"]
)
def test_a_decision_is_logged_as_severe_as_what_was_found(world, caplog, cpus, level):
    caplog.set_level(logging.INFO)
    world.hold({CLAIM_A: [POD], CLAIM_B: [OTHER_POD]})
    with world.runtime() as runtime, world.running(runtime):
        other = world.container(DEVICE_B, env=[ENV_B], pod=OTHER_POD)
        assert runtime.create_container(world.pod(OTHER_POD), other).ok
        made = create(world, runtime, DEVICE_A, cpus=cpus)
    [linked] = [r for r in caplog.records if getattr(r, "container", "") == made.id]
    assert (linked.message, linked.levelname) == ("container linked", level)


def test_what_was_found_at_a_restart_is_said_and_counted(world, caplog):
    world.hold({CLAIM_A: [POD]})
    with world.runtime() as runtime:
        kept = create(world, runtime, DEVICE_A)
        forged = create(world, runtime, env=[ENV_B])
        for each in (kept, forged):
            runtime.start_container(each.id)
        with world.running(runtime):
            for verdict in ("verified", "forged"):
                assert world.metrics.value("claim2core_claim_verdicts_total", verdict) == 1
            world.plugin.verifier.verify_all()
    [said] = [r for r in caplog.records if r.message == "container linked"]
    assert (said.container, said.levelname) == (forged.id, "WARNING")
    assert CLAIM_B in said.claims


def test_naming_a_claim_does_not_make_its_cpus_ones_own(world):
    world.hold({CLAIM_A: [POD], CLAIM_B: [OTHER_POD]})
    with world.runtime() as runtime, world.running(runtime):
        other = world.container(DEVICE_B, env=[ENV_B], pod=OTHER_POD)
        assert runtime.create_container(world.pod(OTHER_POD), other).ok
        # Holds A and only names B, whose CPUs are among those another plugin gave it.
        made = create(world, runtime, DEVICE_A, env=[ENV_A, ENV_B], cpus="2-4")
        codes = [f.code for f in world.book.get(made.id).envelope.findings]
        assert codes == ["C2C-ENV-14"]


def test_cpus_allocated_again_while_their_old_holder_runs_are_given_and_reported(world):
    world.hold({CLAIM_A: [POD], CLAIM_B: [OTHER_POD]})
    with world.runtime() as runtime, world.running(runtime):
        other = world.container(DEVICE_B, env=[ENV_B], pod=OTHER_POD)
        assert runtime.create_container(world.pod(OTHER_POD), other).ok
        world.tree.claim_file(CLAIM_A, "3-4")
        made = create(world, runtime, DEVICE_A, env=[f"DRA_CPUSET_{CLAIM_A}=3-4"])
        assert cpu(made).cpus == "3-4"
        [finding] = world.book.get(made.id).envelope.findings
        assert (finding.code, finding.severity) == ("C2C-ENV-15", "warning")
        assert finding.message == f"CPUs 4 are also those of claim {CLAIM_B}"
        # The old one is gone: so is the conflict.
        assert runtime.stop_container(other.id).ok
        again = create(world, runtime, DEVICE_A, env=[f"DRA_CPUSET_{CLAIM_A}=3-4"], name="again")
        assert world.book.get(again.id).envelope.findings == ()


def test_a_cpuset_of_another_plugin_that_cannot_be_read_is_reported_and_kept(world):
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A, cpus="3-0")
        assert cpu(made).cpus == "3-0"
        [finding] = world.book.get(made.id).envelope.findings
        assert finding.code == "C2C-ENV-07"
        assert "3-0" in finding.message


def test_a_foreign_violation_is_refused_where_configured(tmp_path):
    world = World(tmp_path, rules=Rules(rejects_foreign_violation=True))
    with world.runtime() as runtime, world.running(runtime):
        result = runtime.create_container(
            world.pod(), world.container(DEVICE_A, env=[ENV_A], cpus="3")
        )
        assert "C2C-ENV-13" in str(result.error)
        assert "lacks claimed CPUs 2" in str(result.error)
        assert world.book.claiming() == []


@pytest.mark.parametrize("mode", [Mode.VERIFY, Mode.OBSERVE])
def test_modes_that_only_look_write_nothing(tmp_path, mode):
    world = World(tmp_path, rules=Rules(mode=mode))
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A)
        assert cpu(made).cpus == ""
        world.kernel_says(made.id, "0-7")
        assert runtime.start_container(made.id).ok
        runtime.update_cpuset(made.id, "0-7")
        assert cpu(runtime.container(made.id)).cpus == "0-7"


def test_enforce_takes_over_what_another_plugin_set(tmp_path):
    world = World(tmp_path, rules=Rules(mode=Mode.ENFORCE))
    with world.runtime() as runtime, world.running(runtime):
        assert cpu(create(world, runtime, DEVICE_A, cpus="0-7")).cpus == "2-3"


def test_a_copied_variable_grants_nothing(world):
    world.hold({CLAIM_A: [POD]})
    with world.runtime() as runtime, world.running(runtime):
        thief = world.container(env=[ENV_A], pod=OTHER_POD)
        result = runtime.create_container(world.pod(OTHER_POD), thief)
        assert result.ok
        assert cpu(result.container).cpus == ""
        assert world.metrics.value("claim2core_claim_verdicts_total", "forged") == 1


def test_a_copied_variable_is_refused_where_configured(tmp_path):
    world = World(tmp_path, rules=Rules(effects=Effects(on_forged=RefusalEffect.REJECT)))
    with world.runtime() as runtime, world.running(runtime):
        result = runtime.create_container(
            world.pod(OTHER_POD), world.container(env=[ENV_A], pod=OTHER_POD)
        )
        assert CLAIM_A in str(result.error)
        assert "forged" in str(result.error)


def test_what_a_pod_author_writes_is_not_kept(world):
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, env=[env_of(CLAIM_A, "0," * (1 << 19))])
        assert len(repr(world.book.get(made.id))) < 10_000


def test_a_start_outside_the_envelope_is_refused(world):
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A)
        world.kernel_says(made.id, "0-7")
        result = runtime.start_container(made.id)
        assert "start refused" in str(result.error)
        assert "C2C-ENV-10: effective 0-7 has 0-1,4-7 beyond 2-3" in str(result.error)
        assert world.metrics.value("claim2core_envelope_violations_total") == 1


def test_a_cgroup_that_is_not_found_before_the_start_is_reported(world, caplog):
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A)
        assert runtime.start_container(made.id).ok
    [said] = [r for r in caplog.records if r.message == "cpuset read back"]
    assert (said.levelname, said.code, said.event) == ("WARNING", "C2C-ENV-20", "StartContainer")
    # After the start it may have ended already.
    assert world.metrics.value("claim2core_readbacks_total", "unreadable") == 1
    assert world.metrics.value("claim2core_readbacks_total", "gone") == 1


def test_a_narrower_parent_is_reported_and_starts(world):
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A)
        world.kernel_says(made.id, "2")
        assert runtime.start_container(made.id).ok
        assert [v.code for v in world.book.get(made.id).violations] == ["C2C-ENV-11"]
        assert world.metrics.value("claim2core_readbacks_total", "narrower") == 2
        assert world.metrics.value("claim2core_envelope_violations_total") == 0
        assert world.book.tally().nr_violated == 0


def test_what_cannot_be_read_is_unknown_and_said_once(world, caplog):
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A)
        world.kernel_says(made.id, "2-3")
        runtime.start_container(made.id)
        world.kernel_says(made.id, "0-7")
        runtime.update_cpuset(made.id, "0-7")
        world.kernel_says(made.id, "?")
        for _ in range(3):
            world.plugin.verifier.verify_again()
        entry = world.book.get(made.id)
        assert (entry.observed, [v.code for v in entry.violations]) == (None, ["C2C-ENV-20"])
        assert (world.book.tally().nr_unverified, world.book.tally().nr_violated) == (1, 0)
    said = [r.code for r in caplog.records if r.message == "cpuset read back"]
    assert said == ["C2C-ENV-10", "C2C-ENV-20"]


def test_the_kernel_is_asked_again_after_an_update(world):
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A)
        world.kernel_says(made.id, "2-3")
        runtime.start_container(made.id)
        world.kernel_says(made.id, "0-3")
        runtime.update_cpuset(made.id, "0-3")
        entry = world.book.get(made.id)
        assert entry.observed.when == "PostUpdateContainer"
        assert [v.code for v in entry.violations] == ["C2C-ENV-10"]


def test_a_restart_of_the_plugin_restores_what_is_valid(world):
    with world.runtime() as runtime:
        with world.running(runtime):
            kept = create(world, runtime, DEVICE_A)
            runtime.start_container(kept.id)
            foreign = create(world, runtime, DEVICE_A, cpus="2-3,6", name="foreign")
            runtime.start_container(foreign.id)
        # While it is away: one is moved, one is created unpinned, one claim is unprepared.
        runtime.update_cpuset(kept.id, "0-7")
        late = create(world, runtime, DEVICE_B, name="late")
        runtime.start_container(late.id)
        with world.running(runtime):
            assert cpu(runtime.container(kept.id)).cpus == "2-3"
            assert cpu(runtime.container(late.id)).cpus == "4-5"
            assert cpu(runtime.container(foreign.id)).cpus == "2-3,6"
            assert {e.container.id for e in world.book.claiming()} == {
                kept.id,
                late.id,
                foreign.id,
            }


def test_a_cpuset_that_was_just_put_back_is_read_when_the_runtime_had_time_to_set_it(world, caplog):
    with world.runtime() as runtime:
        late = create(world, runtime, DEVICE_A, name="late")
        runtime.start_container(late.id)
        with world.running(runtime):
            # The answer is out, and the runtime about to write.
            world.kernel_says(late.id, "0-7")
            world.plugin.verifier.verify_all()
            assert world.book.get(late.id).observed is None
            world.kernel_says(late.id, "2-3")
            world.plugin.verifier.verify_again()
            entry = world.book.get(late.id)
            assert (str(entry.observed.cpus), entry.violations) == ("2-3", ())
    assert [r for r in caplog.records if r.message == "cpuset read back"] == []


def test_a_violation_is_looked_at_until_it_is_over_and_said_once(world, caplog):
    caplog.set_level(logging.INFO)
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A)
        world.kernel_says(made.id, "2-3")
        runtime.start_container(made.id)
        world.kernel_says(made.id, "0-7")
        runtime.update_cpuset(made.id, "0-7")
        world.plugin.verifier.verify_again()
        assert [v.code for v in world.book.get(made.id).violations] == ["C2C-ENV-10"]
        world.kernel_says(made.id, "2-3")
        for _ in range(2):
            world.plugin.verifier.verify_again()
        assert world.book.get(made.id).violations == ()
    said = [r.message for r in caplog.records if r.message.startswith("cpuset ")]
    assert said == ["cpuset re-asserted", "cpuset read back", "cpuset as it has to be again"]


def test_a_container_that_was_given_its_cpuset_late_stays_ours_at_the_next_restart(world):
    with world.runtime() as runtime:
        late = create(world, runtime, DEVICE_A, name="late")
        runtime.start_container(late.id)
        for _ in range(2):
            # No mark is left on it: an update cannot set an annotation.
            with world.running(runtime):
                assert runtime.update_cpuset(late.id, "0-7").ok
                assert cpu(runtime.container(late.id)).cpus == "2-3"


def test_a_claim_that_is_proven_again_governs_its_container_again(world):
    with world.runtime() as runtime:
        with world.running(runtime):
            made = create(world, runtime, DEVICE_A)
            runtime.start_container(made.id)
        runtime.update_cpuset(made.id, "0-7")
        spec = world.tree.path(f"/var/run/cdi/dra.k8s.io-cpu_claim-{CLAIM_A}.json")
        spec.rename(f"{spec}.away")
        with world.running(runtime):
            # Nothing is known but where it runs.
            assert runtime.update_cpuset(made.id, "1").ok
            assert cpu(runtime.container(made.id)).cpus == "0-7"
            spec.with_name(f"{spec.name}.away").rename(spec)
            assert runtime.update_cpuset(made.id, "1").ok
            assert cpu(runtime.container(made.id)).cpus == "2-3"


def test_memory_nodes_that_were_never_set_are_no_bound(world):
    with world.runtime() as runtime:
        late = create(world, runtime, DEVICE_A, name="late")
        runtime.start_container(late.id)
        with world.running(runtime):
            # Both nodes: its cpuset comes with the answer to Synchronize, its nodes do not.
            world.kernel_says(late.id, "2-3", mems="0-1")
            world.plugin.verifier.verify_again()
            entry = world.book.get(late.id)
            assert (str(entry.observed.mems), entry.violations) == ("0-1", ())


def test_an_update_keeps_the_memory_nodes_of_the_creation(world):
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A)
        world.kernel_says(made.id, "2-3")
        runtime.start_container(made.id)
        world.kernel_says(made.id, "2-3", mems="0-1")
        runtime.update_cpuset(made.id, "0-7")
        assert [v.code for v in world.book.get(made.id).violations] == ["C2C-ENV-12"]


def test_a_claim_gone_while_we_were_away_governs_nothing_new(world):
    with world.runtime() as runtime:
        with world.running(runtime):
            made = create(world, runtime, DEVICE_A)
            runtime.start_container(made.id)
        world.tree.path(f"/var/run/cdi/dra.k8s.io-cpu_claim-{CLAIM_A}.json").unlink()
        world.hold({CLAIM_B: [POD]})
        with world.running(runtime):
            # Running: keeps the cpuset it has.
            assert cpu(runtime.container(made.id)).cpus == "2-3"
            [link] = world.book.get(made.id).links.links
            assert link.verdict.value == "stale"
            assert runtime.update_cpuset(made.id, "0-7").ok
            assert cpu(runtime.container(made.id)).cpus == "2-3"
            # A new container with the same variable gets nothing of it.
            fresh = create(world, runtime, env=[ENV_A], name="fresh")
            assert cpu(fresh).cpus == ""


def test_an_event_for_a_container_never_seen_adopts_it(world):
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A)
        runtime.start_container(made.id)
        world.book.drop(made.id)
        assert runtime.update_cpuset(made.id, "0-7").ok
        assert cpu(runtime.container(made.id)).cpus == "2-3"


def test_stop_twice_and_of_unknown_containers_is_nothing(world):
    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A)
        runtime.start_container(made.id)
        runtime.stop_container(made.id)
        assert world.book.claiming() == []
        runtime.remove_container(made.id)
        assert runtime.remove_pod(made.pod_sandbox_id).ok


def test_gauges_follow_the_book(world):
    def gauges():
        families = {metric.name: samples for metric, samples in world.metrics.snapshot()}
        return {
            (name, *sample.labels): sample.value
            for name in ("claim2core_pods", "claim2core_containers", "claim2core_claims")
            for sample in families[name]
            if sample.value
        }

    with world.runtime() as runtime, world.running(runtime):
        made = create(world, runtime, DEVICE_A, DEVICE_B)
        create(world, runtime)
        # The two pods were there at registration.
        assert gauges() == {
            ("claim2core_pods",): 2,
            ("claim2core_containers", "own"): 1,
            ("claim2core_containers", "none"): 1,
            ("claim2core_claims", "verified"): 2,
        }
        runtime.stop_container(made.id)
        assert gauges() == {("claim2core_pods",): 2, ("claim2core_containers", "none"): 1}


def test_validation_rejects_what_a_later_plugin_does(tmp_path):
    world = World(tmp_path, "containerd-2.4", validates=True)
    with world.runtime() as runtime, world.running(runtime):
        [info] = runtime.plugins
        assert info.events & 1 << 13
        made = create(world, runtime, DEVICE_A)
        entry = world.book.get(made.id)
        assert "C2C-ENV-10" in world.plugin.decider.validate(entry, "0-3", list)
        assert world.plugin.decider.validate(entry, "2-3", list) == ""
        # Nothing set means every CPU online.
        assert "C2C-ENV-10" in world.plugin.decider.validate(entry, "", list)


def test_validation_is_not_subscribed_unless_configured(world):
    with world.runtime() as runtime, world.running(runtime):
        [info] = runtime.plugins
        assert not info.events & 1 << 13


CLAIMED_AND_NOT = pytest.mark.parametrize(
    ("devices", "env", "refused"),
    [
        ((DEVICE_A,), (ENV_A,), True),
        ((), (ENV_A,), True),
        ((), (f"DRA_CPUSET_{CLAIM_A}=",), True),
        ((DEVICE_A,), (), True),
        ((), (), False),
        # A device plugin's, and a driver's variable for the workload: no claims.
        (("nvidia.com/gpu=0",), ("DRA_CPUSET_ASSIGNED=2-3",), False),
    ],
)


@CLAIMED_AND_NOT
def test_when_time_runs_out_only_claims_are_refused(world, devices, env, refused):
    release = threading.Event()
    stuck = []

    with world.runtime() as runtime, world.running(runtime, handler_deadline=lambda _ms: 0.02):
        decide = world.plugin.decider.at_create

        def hang(*args):
            stuck.append(threading.current_thread())
            assert release.wait(30)
            return decide(*args)

        world.plugin.decider.at_create = hang
        late = world.container(*devices, env=env)
        result = runtime.create_container(world.pod(), late)
        assert len(stuck) == 1
        assert ("in time" in str(result.error)) is refused
        assert result.ok is not refused
        release.set()
        stuck[0].join(10)
        assert not stuck[0].is_alive()
        world.plugin.decider.at_create = decide
        # Its call was answered: the late handler leaves nothing behind.
        assert create(world, runtime, name="next")
        assert late.id not in {entry.container.id for entry in world.book.claiming()}


def test_when_time_runs_out_an_update_moves_nobody_off_its_claims(world):
    release = threading.Event()
    with world.runtime() as runtime, world.running(runtime, handler_deadline=lambda _ms: 0.02):
        made = create(world, runtime, DEVICE_A)
        foreign = create(world, runtime, DEVICE_B, cpus="4-6")
        for each in (made, foreign):
            assert runtime.start_container(each.id).ok
        world.plugin.decider.at_update = lambda _entry: release.wait(30)
        try:
            for each in (made, foreign):
                assert runtime.update_cpuset(each.id, "0-7").ok
            assert cpu(runtime.container(made.id)).cpus == "2-3"
            # Somebody else's is left to them, late as in time.
            assert cpu(runtime.container(foreign.id)).cpus == "0-7"
        finally:
            release.set()


@CLAIMED_AND_NOT
def test_a_bug_of_ours_refuses_only_claims(world, devices, env, refused):
    def broken(*_args):
        raise ZeroDivisionError

    with world.runtime() as runtime, world.running(runtime):
        world.plugin.decider.at_create = broken
        result = runtime.create_container(world.pod(), world.container(*devices, env=env))
        assert result.ok is not refused
        assert [info.name for info in runtime.plugins] == ["claim2core"]
