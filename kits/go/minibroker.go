// Package minibroker runs a broker of the Kafka protocol for tests, and controls it: faults, time, groups, nodes,
// security, and the requests that a program has sent.
//
//	func TestAnOrderGetsAnInvoice(t *testing.T) {
//		kafka := minibroker.Start(t)
//		kafka.Produce("orders", `{"id": 7}`)
//		writeInvoices(kafka.Servers()) // the program under test
//		invoice := kafka.Expect("invoices", 1)[0]
//		...
//	}
//
// [Start] gives a test a broker that is empty, and [Share] gives parallel tests one broker, on which each has topics of
// its own by [Broker.Topic]. The processes end with the process of the tests, however that ends. A verb that fails ends
// the test, and says what was there instead; so verbs are for the goroutine of the test.
package minibroker

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Options say how a broker starts. Brokers with the same options are used again, one test after the other.
type Options struct {
	// Nodes is the number of brokers in the cluster; 0 is one.
	Nodes int
	// Settings by Kafka's names: {"num.partitions": "3"}.
	Settings map[string]string
	// Security is SSL, SASL_PLAINTEXT or SASL_SSL, with certificates and users of the broker's own.
	Security string
	// Users are the passwords by name.
	Users map[string]string
	// Registry starts a schema registry, whose address is RegistryURL.
	Registry bool
	// Emulate is a release of Apache Kafka, such as 2.8, as which the broker answers.
	Emulate string
	// Command starts minibroker, if neither $MINIBROKER nor the PATH says it: {"python3", "-m", "minibroker"}.
	Command []string
}

// Broker is a broker for one test. Its methods are verbs of the test kit, which fail the test if they fail.
type Broker struct {
	t       testing.TB
	process *process
}

var (
	lock   sync.Mutex
	idle   = map[string][]*process{} // by their options
	shared = map[string]*process{}
	topics atomic.Int64
	unfit  = regexp.MustCompile(`[^\w.-]+`)
)

// Start returns a broker that only this test uses until it ends: an empty one, with the clock of the machine.
func Start(t testing.TB, options ...Options) *Broker {
	t.Helper()
	own := only(options)
	key := fmt.Sprint(own) // maps are printed in the order of their keys
	lent := take(key)
	if lent != nil && lent.ask("POST", "reset", nil, nil) != nil {
		lent.stdin.Close() // a test has killed it
		lent = nil
	}
	if lent == nil {
		lent = start(t, own)
	}
	t.Cleanup(func() {
		if lent.changed { // what a reset leaves as it is
			lent.stdin.Close()
			return
		}
		lock.Lock()
		defer lock.Unlock()
		idle[key] = append(idle[key], lent)
	})
	return &Broker{t, lent}
}

// take returns a process that no test uses, or nil.
func take(key string) (found *process) {
	lock.Lock()
	defer lock.Unlock()
	if last := len(idle[key]) - 1; last >= 0 {
		found, idle[key] = idle[key][last], idle[key][:last]
	}
	return found
}

// Share returns the one broker of this process with these options, which tests may use at the same time, and which is
// never reset. Take topics of your own from Topic.
func Share(t testing.TB, options ...Options) *Broker {
	t.Helper()
	own := only(options)
	key := fmt.Sprint(own)
	lock.Lock()
	defer lock.Unlock()
	if shared[key] == nil {
		shared[key] = start(t, own)
	}
	return &Broker{t, shared[key]}
}

func only(options []Options) Options {
	return append(options, Options{})[0]
}

// Servers are the addresses of all nodes, for clients.
func (b *Broker) Servers() []string {
	return strings.Split(b.process.servers, ",")
}

// Topic creates a topic that no other test has, and returns its name.
func (b *Broker) Topic(options ...NewTopic) string {
	b.t.Helper()
	name := fmt.Sprintf("%s-%d", unfit.ReplaceAllString(b.t.Name(), "-"), topics.Add(1))
	return b.CreateTopic(name[max(0, len(name)-200):], options...)
}

// Produce appends records to partition 0 of a topic, as one batch, and returns the offset of the first. ProduceRecords
// has keys, headers and other partitions.
func (b *Broker) Produce(topic string, values ...string) int {
	b.t.Helper()
	return b.ProduceRecords(topic, NewRecords{Values: values})
}

// Bytes is a key or a value; it is nil where a record has none.
type Bytes []byte

// String returns the bytes as a text.
func (b Bytes) String() string { return string(b) }

// UnmarshalJSON reads hexadecimal digits.
func (b *Bytes) UnmarshalJSON(text []byte) error {
	var digits *string
	if err := json.Unmarshal(text, &digits); err != nil || digits == nil {
		return err
	}
	found, err := hex.DecodeString(*digits)
	*b = append(Bytes{}, found...)
	return err
}

func (b *Broker) ask(method, path string, fields map[string]any, answer any) {
	b.t.Helper()
	if err := b.process.ask(method, path, fields, answer); err != nil {
		b.t.Fatal(err)
	}
}

// ask sends a request, and reads its answer. The fields of a GET are in its query.
func (p *process) ask(method, path string, fields map[string]any, answer any) error {
	if method == "POST" && path == "security" {
		p.changed = true
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(method, p.control+"/v1/"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if method == "GET" {
		query := url.Values{}
		for name, value := range fields {
			query.Set(name, fmt.Sprint(reflect.Indirect(reflect.ValueOf(value))))
		}
		request.URL.RawQuery, request.Body = query.Encode(), http.NoBody
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return p.explained(err)
	}
	defer response.Body.Close()
	if response.StatusCode >= 400 {
		var said struct{ Message string }
		json.NewDecoder(response.Body).Decode(&said)
		return errors.New(cmp.Or(said.Message, method+" "+path+": "+response.Status))
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

func path(parts ...any) string {
	texts := make([]string, len(parts))
	for i, part := range parts {
		texts[i] = url.PathEscape(fmt.Sprint(part))
	}
	return strings.Join(texts, "/")
}

// given returns the fields of a request: those of structs that are not zero, then names and values in turn.
func given[T any](structs []T, named ...any) map[string]any {
	fields := map[string]any{}
	for _, each := range structs {
		value := reflect.ValueOf(each)
		for i := range value.NumField() {
			if field := value.Field(i); !field.IsZero() {
				fields[value.Type().Field(i).Tag.Get("json")] = sent(field.Interface())
			}
		}
	}
	for i := 0; i < len(named); i += 2 {
		if named[i+1] != "" {
			fields[named[i].(string)] = sent(named[i+1])
		}
	}
	return fields
}

// sent returns a duration in milliseconds, and anything else as it is.
func sent(value any) any {
	if duration, ok := value.(time.Duration); ok {
		return float64(duration) / float64(time.Millisecond)
	}
	return value
}
