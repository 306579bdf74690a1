package minibroker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	patience = 5 * time.Minute // for an image or a package to come from a registry
	pause    = 5 * time.Millisecond
)

// A process of minibroker. It ends when its stdin does, which is a pipe from this process.
type process struct {
	servers, control string
	changed          bool
	stdin            io.Closer
	said             *said
	ended            chan struct{}
}

// start starts a broker, and waits until it listens.
func start(t testing.TB, options Options) *process {
	t.Helper()
	directory, err := os.MkdirTemp("", "minibroker-kit-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(directory)
	words, err := command(options.Command, directory)
	if err != nil {
		t.Fatal(err)
	}
	ready := filepath.Join(directory, "ready")
	words = append(words, arguments(options, ready)...)
	running := exec.Command(words[0], words[1:]...)
	own := &process{said: &said{}, ended: make(chan struct{})}
	running.Stderr = own.said
	own.stdin, _ = running.StdinPipe()
	if err := running.Start(); err != nil {
		t.Fatal("minibroker did not start: ", err)
	}
	go func() {
		running.Wait()
		close(own.ended)
	}()
	if err := own.await(ready); err != nil {
		own.stdin.Close()
		t.Fatal("minibroker did not start: ", err)
	}
	return own
}

// command returns what starts minibroker here; docs say in which order it is looked for.
func command(own []string, directory string) ([]string, error) {
	for _, named := range [][]string{own, strings.Fields(os.Getenv("MINIBROKER"))} {
		if len(named) > 0 {
			return append([]string{}, named...), nil
		}
	}
	image := []string{"run", "--rm", "--interactive", "--network=host", "--volume=" + directory + ":" + directory,
		fmt.Sprintf("--user=%d:%d", os.Getuid(), os.Getgid()), "minibroker", "minibroker"}
	for _, words := range [][]string{
		{"minibroker"},
		{"uvx", "--from", "minibroker[control,registry]", "minibroker"},
		append([]string{"docker"}, image...),
		append([]string{"podman"}, image...),
	} {
		if _, err := exec.LookPath(words[0]); err == nil {
			return words, nil
		}
	}
	return nil, errors.New("there is no minibroker: install it, or say in MINIBROKER what starts it; " +
		"uvx, docker and podman are not there, either")
}

func arguments(options Options, ready string) []string {
	words := []string{"serve", "--until-stdin-closes", "--temporary", "--ready-file", ready, "--log-level", "warning",
		"--control", "0", "--nodes", fmt.Sprint(max(options.Nodes, 1)), "--set", "listeners=PLAINTEXT://127.0.0.1:0"}
	if options.Registry {
		words = append(words, "--registry", "0")
	}
	for name, value := range map[string]string{"--security": options.Security, "--emulate": options.Emulate} {
		if value != "" {
			words = append(words, name, value)
		}
	}
	for name, password := range options.Users {
		words = append(words, "--user", name+":"+password)
	}
	for name, value := range options.Settings {
		words = append(words, "--set", name+"="+value)
	}
	return words
}

// await waits for the ready file, and reads it.
func (p *process) await(ready string) error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if text, err := os.ReadFile(ready); err == nil {
			for _, line := range strings.Split(string(text), "\n") {
				if name, address, _ := strings.Cut(line, " "); name == "control" {
					p.control = address
				}
			}
			var state BrokerState
			err := p.ask("GET", "broker", nil, &state)
			p.servers = state.BootstrapServers
			return err
		}
		select {
		case <-p.ended:
			return errors.New(p.said.line())
		case <-time.After(pause):
		}
	}
	return fmt.Errorf("nothing within %s, but %q", patience, p.said.line())
}

// explained returns why a request has no answer: if the broker has ended, what it said.
func (p *process) explained(err error) error {
	select {
	case <-p.ended:
		return fmt.Errorf("minibroker has ended: %s", p.said.line())
	case <-time.After(2 * time.Second): // for a process to end whose connections have ended
		return err
	}
}

// said passes on what the broker writes to stderr, and knows its last line.
type said struct {
	lock sync.Mutex
	last string
}

func (s *said) Write(text []byte) (int, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.last = (s.last + string(text))[max(0, len(s.last)+len(text)-4096):]
	return os.Stderr.Write(text)
}

func (s *said) line() string {
	s.lock.Lock()
	defer s.lock.Unlock()
	lines := strings.Split(strings.TrimSpace(s.last), "\n")
	return strings.TrimPrefix(lines[len(lines)-1], "minibroker: ")
}
