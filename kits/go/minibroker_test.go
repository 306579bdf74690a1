package minibroker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestRecordsAreWrittenAndRead(t *testing.T) {
	kafka := Start(t)
	if offset := kafka.Produce("orders", "first", "second"); offset != 0 {
		t.Error(offset)
	}
	offset := kafka.ProduceRecords("orders", NewRecords{ValuesHex: []*string{new("ff00"), nil}, Key: "ann", TimestampMs: new(7)})
	records := kafka.Expect("orders", 4)
	if offset != 2 || records[0].Value.String() != "first" || records[0].Key != nil {
		t.Error(offset, records[0])
	}
	if last := records[3]; last.Value != nil || last.Key.String() != "ann" || last.TimestampMs != 7 {
		t.Error(last)
	}
	if !bytes.Equal(records[2].Value, []byte{0xff, 0}) {
		t.Error(records[2].Value)
	}
}

func TestATestFindsNothingOfOthers(t *testing.T) {
	for range 2 {
		t.Run("each", func(t *testing.T) {
			kafka := Start(t)
			if found := kafka.Records("orders"); len(found) > 0 {
				t.Error(found)
			}
			kafka.Produce("orders", "first")
		})
	}
	var first, second string
	t.Run("first", func(t *testing.T) { first = Start(t).Servers()[0] })
	t.Run("second", func(t *testing.T) { second = Start(t).Servers()[0] })
	if first != second {
		t.Error("the process is another one:", first, second)
	}
}

func TestParallelTestsShareABroker(t *testing.T) {
	for number := range 3 {
		t.Run(fmt.Sprint("of/", number), func(t *testing.T) {
			t.Parallel()
			kafka := Share(t)
			topic := kafka.Topic(NewTopic{Partitions: 2})
			kafka.Produce(topic, fmt.Sprint(number))
			if found := kafka.Expect(topic, 1)[0]; found.Value.String() != fmt.Sprint(number) {
				t.Error(found)
			}
		})
	}
}

// A test that fails in another one: it keeps what it is told instead of ending.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}

func (f *failing) Fatal(values ...any) {
	f.said = fmt.Sprint(values...)
	panic(f)
}

// failure returns what a test says that does this.
func failure(t *testing.T, options Options, do func(*Broker)) string {
	t.Helper()
	inner := &failing{TB: t}
	func() {
		defer func() {
			if found := recover(); found != nil && found != any(inner) {
				panic(found)
			}
		}()
		do(Start(inner, options))
	}()
	return inner.said
}

func TestAWaitSaysWhatIsThereInstead(t *testing.T) {
	said := failure(t, Options{}, func(kafka *Broker) {
		kafka.ProduceRecords("orders", NewRecords{Values: []string{"first"}, Key: "ann"})
		kafka.Expect("orders", 2, Expectation{Timeout: 50 * time.Millisecond})
	})
	expected := "after 0.05 s: 2 records were expected in orders, and there is 1\n  orders-0 offset 0: key 'ann', value 'first'"
	if said != expected {
		t.Error(said)
	}
	said = failure(t, Options{}, func(kafka *Broker) { kafka.WaitForGroup("billing", GroupWait{Timeout: time.Millisecond}) })
	if !strings.Contains(said, "billing") {
		t.Error(said)
	}
	said = failure(t, Options{}, func(kafka *Broker) { kafka.WaitForRequests("Fetch", 1, RequestWait{Timeout: time.Millisecond}) })
	if !strings.Contains(said, "1 request was expected (api Fetch), and there are 0") {
		t.Error(said)
	}
}

func TestABrokerThatCannotStartSaysWhy(t *testing.T) {
	began := time.Now()
	said := failure(t, Options{Settings: map[string]string{"log.segment.byte": "1"}}, func(*Broker) {})
	if !strings.HasPrefix(said, "minibroker did not start: --set log.segment.byte: unknown setting log.segment.byte; did you mean") {
		t.Error(said)
	}
	reason := "the extra control is missing: python3 -m pip install 'minibroker[control]'"
	script := []string{"sh", "-c", `echo "minibroker: $0" >&2; exit 2`, reason}
	if said := failure(t, Options{Command: script}, func(*Broker) {}); said != "minibroker did not start: "+reason {
		t.Error(said)
	}
	if said := failure(t, Options{Command: []string{"/nowhere"}}, func(*Broker) {}); !strings.Contains(said, "/nowhere") {
		t.Error(said)
	}
	if took := time.Since(began); took > time.Minute {
		t.Error(took)
	}
}

func TestABrokerIsFoundInThisOrder(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("PATH", folder)
	t.Setenv("MINIBROKER", "")
	if _, err := command(nil, "/tmp/x"); err == nil || !strings.HasPrefix(err.Error(), "there is no minibroker") {
		t.Error(err)
	}
	for name, expected := range map[string]string{
		"podman": "podman run", "docker": "docker run", "uvx": "uvx --from minibroker[control,registry] minibroker",
		"minibroker": "minibroker",
	} {
		path := folder + "/" + name
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if words, err := command(nil, "/tmp/x"); err != nil || !strings.HasPrefix(strings.Join(words, " "), expected) {
			t.Error(words, err)
		}
		os.Remove(path)
	}
	t.Setenv("MINIBROKER", "python3 -m minibroker")
	if words, _ := command(nil, ""); len(words) != 3 {
		t.Error(words)
	}
	if words, _ := command([]string{"own"}, ""); words[0] != "own" {
		t.Error(words)
	}
}

func TestAnImageIsABrokerToo(t *testing.T) {
	real, err := command(nil, "")
	if err != nil {
		t.Fatal(err)
	}
	engine := t.TempDir() + "/docker"
	script := "#!/bin/sh\nwhile [ \"$1\" != minibroker ]; do shift; done\nshift 2\nexec " + strings.Join(real, " ") + " \"$@\"\n"
	if err := os.WriteFile(engine, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	kafka := Start(t, Options{Command: []string{engine, "run", "--rm", "minibroker", "minibroker"}})
	kafka.Produce("orders", "first")
	kafka.Expect("orders", 1)
}

func TestFaultsAndTime(t *testing.T) {
	kafka := Start(t)
	fault := kafka.AddFault(NewFault{API: "Produce", Error: "NOT_LEADER_OR_FOLLOWER", Times: 2})
	if found := kafka.Faults(); len(found) != 1 || found[0] != fault || fault.Hits != 0 {
		t.Error(found)
	}
	kafka.RemoveFault(fault.Number)
	slow := kafka.AddFault(NewFault{API: []string{"Fetch"}, Delay: 20 * time.Millisecond, Partition: new(0)})
	if !strings.Contains(slow.Rule, "delay 0.02") && !strings.Contains(slow.Rule, "20 ms") {
		t.Error(slow.Rule)
	}
	before := kafka.FreezeClock().NowMs
	if after := kafka.AdvanceClock(8 * 24 * time.Hour); after.NowMs-before != 691_200_000 || !after.Frozen {
		t.Error(before, after)
	}
}

func TestNodesAndSnapshots(t *testing.T) {
	kafka := Start(t, Options{Nodes: 3, Settings: map[string]string{"default.replication.factor": "3"}})
	if len(kafka.Servers()) != 3 {
		t.Error(kafka.Servers())
	}
	kafka.Produce("orders", "first")
	snapshot, leader := kafka.Snapshot(), kafka.Leader("orders", 0)
	kafka.KillNode(*leader)
	if other := kafka.Leader("orders", 0); other == nil || *other == *leader {
		t.Error("the leader is still", *leader)
	}
	kafka.StartNode(*leader)
	kafka.MoveLeader("orders", 0, nil)
	kafka.Produce("others", "first")
	kafka.Restore(snapshot)
	if topics := kafka.State().Topics; len(topics) != 1 || *topics["orders"][0] != 1 {
		t.Error(topics)
	}
	kafka.Kill()
	kafka.Restart()
	kafka.Expect("orders", 1)
}

func TestABrokerThatWasKilledIsNotUsedAgain(t *testing.T) {
	settings := Options{Settings: map[string]string{"num.partitions": "2"}}
	t.Run("kill", func(t *testing.T) { Start(t, settings).Kill() })
	t.Run("next", func(t *testing.T) { Start(t, settings).Produce("orders", "first") })
}

func TestSecurity(t *testing.T) {
	kafka := Start(t, Options{Security: "SASL_SSL", Users: map[string]string{"alice": "wonderland"}})
	config := kafka.ClientConfig("franz-go", ClientOptions{User: "alice"})
	if text, _ := json.Marshal(config["sasl"]); !bytes.Contains(text, []byte("wonderland")) {
		t.Error(config)
	}
	kafka.Deny("alice", "write", AclRule{Topic: "orders"})
	if state := kafka.Security(); *state.Issuer == (IssuerState{}) || state.Users[0] != "alice" {
		t.Error(state)
	}
}

func TestARegistryHasAnAddress(t *testing.T) {
	kafka := Start(t, Options{Registry: true})
	id := kafka.RegisterSchema("orders-value", `{"type": "string"}`)
	if id != 1 || !strings.HasPrefix(kafka.RegistryURL(), "http://127.0.0.1:") {
		t.Error(id, kafka.RegistryURL())
	}
	if seen := kafka.RegistryRequests(RegistryRequestsQuery{Method: "GET"}); len(seen) != 0 {
		t.Error(seen)
	}
	kafka.ConfigureShareGroup("workers", map[string]any{"share.auto.offset.reset": "earliest"})
	if found := kafka.Deliveries("workers", DeliveriesQuery{Topic: "orders"}); len(found) != 0 {
		t.Error(found)
	}
}

// What TestNoBrokerIsLeftBehind runs: a test that is killed.
func TestHelperThatIsKilled(t *testing.T) {
	if os.Getenv("KILL_ME") == "" {
		t.Skip("it is for another test")
	}
	own := Start(t)
	fmt.Printf("%s\n", own.Servers()[0])
	os.Stdin.Read(make([]byte, 1))
}

func TestNoBrokerIsLeftBehind(t *testing.T) {
	child := exec.Command(os.Args[0], "-test.run", "^TestHelperThatIsKilled$")
	temporary := t.TempDir()
	child.Env = append(os.Environ(), "KILL_ME=1", "TMPDIR="+temporary)
	stdin, _ := child.StdinPipe()
	defer stdin.Close()
	output, _ := child.StdoutPipe()
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var address string
	if _, err := fmt.Fscanln(output, &address); err != nil {
		t.Fatal(err)
	}
	child.Process.Kill()
	child.Wait()
	for range 200 { // of 50 ms
		left, err := os.ReadDir(temporary)
		if err == nil && len(left) == 0 { // the broker removes its data last
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("the broker runs still at", address)
}
