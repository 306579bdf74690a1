// Package cases is what Go's programs that log in share; ../secured.py has the rules.
package cases

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Patience is how long a case may take.
const Patience = 30 * time.Second

// Case is what to do, and how to come in.
type Case struct {
	Action, Bootstrap, Mechanism, User, Password, Token, Authority, Certificate, Topic string
	Records                                                                            int
	Seconds                                                                            float64
	TokenAuth                                                                          bool
	Config                                                                             json.RawMessage
}

// Run does the cases that stdin gives, a line of JSON each, and answers each with one.
func Run(stdin io.Reader, do func(Case) (map[string]any, error)) error {
	lines := bufio.NewScanner(stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var asked Case
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return err
		}
		answer, err := do(asked)
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

// Pause is the time between two records.
func (asked Case) Pause() time.Duration {
	return time.Duration(asked.Seconds * float64(time.Second) / float64(asked.Records))
}

// TLS is nil for a case without an authority.
func (asked Case) TLS() (*tls.Config, error) {
	if asked.Authority == "" {
		return nil, nil
	}
	authority, err := os.ReadFile(asked.Authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authority)
	if asked.Certificate == "" {
		return config, nil
	}
	certificate, err := tls.LoadX509KeyPair(asked.Certificate, asked.Certificate)
	config.Certificates = []tls.Certificate{certificate}
	return config, err
}

// UntilRefused repeats what a right allows, and prints a line once it has been done.
func UntilRefused(do func() error) error {
	end := time.Now().Add(Patience)
	for first := true; time.Now().Before(end); first = false {
		if err := do(); err != nil {
			return err
		}
		if first {
			fmt.Println(`{"event": "begun"}`)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return errors.New("was not refused")
}
