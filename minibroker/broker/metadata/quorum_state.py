"""`quorum-state`, the file with the newest leader epoch that a voter of the quorum knows.

Here one process is both leader and majority, so that an election is a line in this file and a control record in the
metadata log. A Kafka that starts on the directory continues with later epochs.

     data_version 0   {"clusterId":"","leaderId":0,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,
                       "currentVoters":[{"voterId":0}],"data_version":0}
     data_version 1   {"leaderId":0,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"<zeros>","data_version":1}
                      (kraft.version 1: the voters are in the log)
"""

from __future__ import annotations

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.primitives import ZERO_UUID, format_uuid

NOBODY = -1


class MalformedQuorumState(ValueError):
    """Text that Kafka would not write."""


class QuorumState(NamedTuple):
    """The newest epoch and its leader; `voters` are node ids, empty in version 1."""

    leader_id: int = NOBODY
    leader_epoch: int = 0
    voters: tuple[int, ...] = ()
    version: int = 0

    def make_state_after_election(self, leader_id: int, leader_epoch: int) -> QuorumState:
        """Return the state after the election of this node."""
        voters = self.voters or (leader_id,) if self.version == 0 else ()
        return self._replace(leader_id=leader_id, leader_epoch=leader_epoch, voters=voters)

    def encode_as_json(self) -> bytes:
        """Return the content of the quorum-state file, as Kafka writes it."""
        leader = f'"leaderId":{self.leader_id},"leaderEpoch":{self.leader_epoch},"votedId":{NOBODY}'
        if self.version == 1:
            return f'{{{leader},"votedDirectoryId":"{format_uuid(ZERO_UUID)}","data_version":1}}'.encode()
        voters = ",".join(f'{{"voterId":{voter}}}' for voter in self.voters)
        return f'{{"clusterId":"",{leader},"appliedOffset":0,"currentVoters":[{voters}],"data_version":0}}'.encode()


def parse_quorum_state(text: bytes) -> QuorumState:
    """Parse the content of a quorum-state file. Raises `MalformedQuorumState`."""
    import json  # a slow import, and a new directory has no such file

    try:
        fields = json.loads(text)
        voters = tuple(int(voter["voterId"]) for voter in fields.get("currentVoters") or ())
        state = QuorumState(int(fields["leaderId"]), int(fields["leaderEpoch"]), voters, int(fields["data_version"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedQuorumState(f"{type(error).__name__}: {error}") from None
    if state.version not in (0, 1):
        raise MalformedQuorumState(f"data_version {state.version} is not known")
    return state
