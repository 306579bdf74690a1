import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.function.Function;
import org.apache.kafka.common.errors.FencedMemberEpochException;
import org.apache.kafka.coordinator.group.api.streams.assignor.TopologyDescriber;
import org.apache.kafka.coordinator.group.streams.CurrentAssignmentBuilder;
import org.apache.kafka.coordinator.group.streams.MemberState;
import org.apache.kafka.coordinator.group.streams.StreamsGroupMember;
import org.apache.kafka.coordinator.group.streams.TasksTuple;
import org.apache.kafka.coordinator.group.streams.TasksTupleWithEpochs;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentConfigsImpl;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberMetadataAndStateImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;

/**
 * Reads questions, an object of JSON on each line, and answers each with what Kafka's classes make of it: what its sticky
 * assignor gives the members of a group, or the next step of a member on the way to its target.
 */
public final class Assignments {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode said = JSON.readTree(line);
            System.out.println(JSON.writeValueAsString(said.has("members") ? assigned(said) : reconciled(said)));
        }
    }

    // --- the assignor ---

    private static ObjectNode assigned(JsonNode group) {
        Map<String, MemberMetadataAndStateImpl> members = new HashMap<>();
        group.get("members").fields().forEachRemaining(each -> members.put(each.getKey(), member(each.getValue())));
        AssignmentConfigsImpl configs = new AssignmentConfigsImpl(group.get("standbys").asInt(), List.of());
        ObjectNode answer = JSON.createObjectNode();
        new StickyTaskAssignor().assign(new GroupSpecImpl(members, configs), topology(group.get("subtopologies")))
            .members().forEach((name, tasks) -> {
                ObjectNode given = answer.putObject(name);
                given.set("active", JSON.valueToTree(tasks.activeTasks()));
                given.set("standby", JSON.valueToTree(tasks.standbyTasks()));
            });
        return answer;
    }

    private static MemberMetadataAndStateImpl member(JsonNode said) {
        return new MemberMetadataAndStateImpl(Optional.empty(), Optional.empty(), said.get("process").asText(), Map.of(),
            tasks(said.get("active")), tasks(said.get("standby")), Map.of(),
            nested(said.get("offsets"), JsonNode::asLong), Map.of());
    }

    private static TopologyDescriber topology(JsonNode said) {
        List<String> names = new ArrayList<>();
        said.fieldNames().forEachRemaining(names::add);
        return new TopologyDescriber() {
            @Override
            public List<String> subtopologies() {
                return names;
            }

            @Override
            public int maxNumInputPartitions(String name) {
                return said.get(name).get("tasks").asInt();
            }

            @Override
            public boolean isStateful(String name) {
                return said.get(name).get("stateful").asBoolean();
            }
        };
    }

    // --- the way to the target ---

    private static ObjectNode reconciled(JsonNode said) {
        StreamsGroupMember member = new StreamsGroupMember.Builder("m")
            .setMemberEpoch(said.get("epoch").asInt())
            .setPreviousMemberEpoch(said.get("previous").asInt())
            .setState(MemberState.fromValue((byte) said.get("state").asInt()))
            .setProcessId("p")
            .setAssignedTasks(withEpochs(said.get("assigned")))
            .setTasksPendingRevocation(withEpochs(said.get("pending")))
            .build();
        CurrentAssignmentBuilder builder = new CurrentAssignmentBuilder(member)
            .withTargetAssignment(said.get("target_epoch").asInt(), tuple(said.get("target")))
            .withCurrentActiveTaskProcessId(of(nested(said.get("active_process"), JsonNode::asText), null))
            .withCurrentStandbyTaskProcessIds(of(nested(said.get("standby_processes"), Assignments::names), Set.of()))
            .withCurrentWarmupTaskProcessIds(of(nested(said.get("warmup_processes"), Assignments::names), Set.of()))
            .withOwnedAssignment(said.get("owned").isNull() ? null : tuple(said.get("owned")));
        ObjectNode answer = JSON.createObjectNode();
        try {
            StreamsGroupMember after = builder.build();
            answer.put("epoch", after.memberEpoch());
            answer.put("previous", after.previousMemberEpoch());
            answer.put("state", after.state().value());
            answer.set("assigned", told(after.assignedTasks()));
            answer.set("pending", told(after.tasksPendingRevocation()));
        } catch (FencedMemberEpochException error) {
            answer.put("error", "fenced");
        }
        return answer;
    }

    private static ObjectNode told(TasksTupleWithEpochs tasks) {
        ObjectNode answer = JSON.createObjectNode();
        answer.set("active", JSON.valueToTree(tasks.activeTasksWithEpochs()));
        answer.set("standby", JSON.valueToTree(tasks.standbyTasks()));
        answer.set("warmup", JSON.valueToTree(tasks.warmupTasks()));
        return answer;
    }

    private static <T> BiFunction<String, Integer, T> of(Map<String, Map<Integer, T>> found, T otherwise) {
        return (name, partition) -> found.getOrDefault(name, Map.of()).getOrDefault(partition, otherwise);
    }

    private static TasksTuple tuple(JsonNode said) {
        return new TasksTuple(tasks(said.get("active")), tasks(said.get("standby")), tasks(said.get("warmup")));
    }

    private static TasksTupleWithEpochs withEpochs(JsonNode said) {
        return new TasksTupleWithEpochs(nested(said.get("active"), JsonNode::asInt), tasks(said.get("standby")),
            tasks(said.get("warmup")));
    }

    private static Map<String, Set<Integer>> tasks(JsonNode said) {
        Map<String, Set<Integer>> tasks = new HashMap<>();
        said.fields().forEachRemaining(each -> {
            Set<Integer> partitions = new HashSet<>();
            each.getValue().forEach(partition -> partitions.add(partition.asInt()));
            tasks.put(each.getKey(), partitions);
        });
        return tasks;
    }

    private static <T> Map<String, Map<Integer, T>> nested(JsonNode said, Function<JsonNode, T> value) {
        Map<String, Map<Integer, T>> found = new HashMap<>();
        said.fields().forEachRemaining(each -> {
            Map<Integer, T> inner = new HashMap<>();
            each.getValue().fields().forEachRemaining(
                one -> inner.put(Integer.valueOf(one.getKey()), value.apply(one.getValue())));
            found.put(each.getKey(), inner);
        });
        return found;
    }

    private static Set<String> names(JsonNode said) {
        Set<String> names = new HashSet<>();
        said.forEach(each -> names.add(each.asText()));
        return names;
    }
}
