package billing

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The broker of all tests: where clients and where tests reach it.
var servers, control string

func TestMain(m *testing.M) {
	data, err := os.MkdirTemp("", "billing")
	if err != nil {
		log.Fatal(err)
	}
	broker := exec.Command("minibroker", "serve", "--control", "0", "--log-level", "warning",
		"--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "log.dirs="+data)
	broker.Stderr = os.Stderr
	output, err := broker.StdoutPipe()
	if err != nil {
		log.Fatal(err)
	}
	if err := broker.Start(); err != nil {
		log.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	servers, control = lastWord(lines), lastWord(lines)
	status := m.Run()
	broker.Process.Signal(os.Interrupt)
	broker.Wait()
	os.RemoveAll(data)
	os.Exit(status)
}

// lastWord returns the last word of the next line. The broker prints two lines, which end with its addresses.
func lastWord(lines *bufio.Scanner) string {
	if !lines.Scan() {
		log.Fatal("the broker did not start; it says why on stderr")
	}
	words := strings.Fields(lines.Text())
	return words[len(words)-1]
}

// ask calls a method of the test kit, and decodes what it returns.
func ask(t *testing.T, path string, arguments, returned any) {
	t.Helper()
	body, err := json.Marshal(arguments)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Post(control+"/v1/"+path, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 400 {
		var said struct{ Message string }
		json.NewDecoder(answer.Body).Decode(&said)
		t.Fatal(fmt.Sprint(answer.Status, ": ", said.Message))
	}
	if returned != nil {
		if err := json.NewDecoder(answer.Body).Decode(returned); err != nil {
			t.Fatal(err)
		}
	}
}
