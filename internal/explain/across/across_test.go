package across_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"fairlead/internal/api"
	"fairlead/internal/explain/across"
)

// hostile is a node that answers with anything.
type hostile struct {
	part api.FlowPart
	err  error
}

func (h hostile) Holder(netip.Addr) (id, name string, err error) { return "n1", "evil", nil }

func (h hostile) Peer(_ context.Context, _, _ string, _, into any) error {
	text, err := json.Marshal(h.part)
	return errors.Join(h.err, err, json.Unmarshal(text, into))
}

var question = api.FlowQuestion{Proto: "tcp", Source: netip.MustParseAddrPort("10.9.0.1:0"),
	Destination: netip.MustParseAddrPort("10.9.0.2:80")}

// TestHostileAnswer asks a node that answers with control characters, long texts and many steps.
func TestHostileAnswer(t *testing.T) {
	long := strings.Repeat("ä", 10_000)
	part := api.FlowPart{Node: "other", Verdict: "\x1b[2Jdelivered\n2. faked", Outcome: long}
	step := api.FlowStep{Where: "a\nb", Link: "\x07", What: long, By: "\u202e", Program: long, Why: "\r"}
	for range 1000 {
		part.Steps = append(part.Steps, step)
		part.Caveats = append(part.Caveats, long)
	}
	got, err := across.Ask(t.Context(), hostile{part: part}, question)
	if err != nil || got.Node != "evil" || len(got.Steps) > 64 || len(got.Caveats) > 16 {
		t.Fatalf("%s: %d steps, %d caveats, %v", got.Node, len(got.Steps), len(got.Caveats), err)
	}
	texts := []string{got.Outcome, got.Verdict, got.Caveats[1]}
	for _, s := range got.Steps {
		texts = append(texts, s.Where, s.Link, s.What, s.By, s.Program, s.Why)
	}
	for _, text := range texts {
		if len(text) > 700 || !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\n\r\x07\u202e") {
			t.Fatalf("an answer contains %q", text)
		}
	}
}

// TestNoAnswer asks a node that does not answer.
func TestNoAnswer(t *testing.T) {
	got, err := across.Ask(t.Context(), hostile{err: errors.New("connection refused")}, question)
	if err != nil || got.Problem != "node evil does not answer: connection refused" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestHostileQuestion asks this host what it must refuse.
func TestHostileQuestion(t *testing.T) {
	host := &across.Host{Attachments: func() []api.View { return nil }}
	for _, question := range []string{"", "[]", "{}", `{"proto":"tcp"}`, `{"proto":"icmp","source":"10.9.0.1:1",` +
		`"destination":"10.9.0.2:80"}`, `{"proto":"tcp","source":"10.9.0.1:1","destination":"x"}`} {
		if answer, err := host.Answer(t.Context(), "n1", json.RawMessage(question)); api.CodeOf(err) != api.Invalid {
			t.Errorf("%s: %v, %v", question, answer, err)
		}
	}
}
