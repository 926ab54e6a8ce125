package health

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"strconv"
	"strings"
)

// Advice is the answer of a server's agent. Points that it does not mention keep
// their last value.
type Advice struct {
	// Weighs is true if the agent sets Share, in percent of the server's weight.
	Weighs bool `json:"weighs,omitempty"`
	Share  int  `json:"share,omitempty"`
	// Admin is ready, drain or maint.
	Admin string `json:"admin,omitempty"`
	// Health is up or down. Reason is the agent's reason.
	Health string `json:"health,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// mostShare is the largest share that an agent may set, in percent.
const mostShare = 1000

// String returns the advice in the agent's format.
func (a Advice) String() string {
	var words []string
	if a.Weighs {
		words = append(words, strconv.Itoa(a.Share)+"%")
	}
	for _, word := range []string{a.Admin, a.Health} {
		if word != "" {
			words = append(words, word)
		}
	}
	if a.Reason != "" {
		words = append(words, "("+a.Reason+")")
	}
	return strings.Join(words, " ")
}

// ParseAdvice parses the first line of an agent's answer: words, separated by
// blanks or commas, and a reason after "#" (HAProxy's configuration manual,
// agent-check). It ignores unknown words, as HAProxy does.
func ParseAdvice(answer string) Advice {
	line, _, _ := strings.Cut(strings.TrimLeft(answer, "\r\n"), "\n")
	line, reason, _ := strings.Cut(line, "#")
	var a Advice
	for word := range strings.FieldsFuncSeq(line, func(r rune) bool { return strings.ContainsRune(" \t\r,", r) }) {
		switch word = strings.ToLower(word); word {
		case "ready", "drain", "maint":
			a.Admin = word
		case "up":
			a.Health = "up"
		case "down", "fail", "failed", "stopped":
			a.Health = "down"
		default:
			number, percent := strings.CutSuffix(word, "%")
			share, err := strconv.ParseUint(number, 10, 16)
			if percent && err == nil {
				a.Weighs, a.Share = true, min(mostShare, int(share))
			}
		}
	}
	if a != (Advice{}) {
		a.Reason = oneLine(reason)
	}
	return a
}

// withAgent asks a server's agent in parallel with its check, if it has one. An
// agent that cannot be reached gives no advice, and does not fail the check.
type withAgent struct {
	check Checker
	port  uint16
}

// Check implements Checker.
func (w withAgent) Check(ctx context.Context, at Target) Result {
	if w.check == nil {
		advice := askAgent(ctx, at, w.port)
		if advice == (Advice{}) {
			return Result{Void: true, Detail: "the agent gives no advice"}
		}
		return Result{OK: true, Detail: "agent: " + advice.String(), Advice: advice}
	}
	advice := make(chan Advice, 1)
	go func() { advice <- askAgent(ctx, at, w.port) }()
	r := w.check.Check(ctx, at)
	if r.OK { // a failed check is not delayed by the agent
		r.Advice = <-advice
	}
	return r
}

func askAgent(ctx context.Context, at Target, port uint16) Advice {
	// The agent is not part of the service: it is dialled at the server's address.
	at.Real, at.Dial = netip.AddrPortFrom(at.Real.Addr(), port), nil
	conn, err := open(ctx, at, "tcp")
	if err != nil {
		return Advice{}
	}
	defer conn.Close()
	answer := make([]byte, 0, 1024)
	for len(answer) < cap(answer) && !ended(answer) {
		n, err := conn.Read(answer[len(answer):cap(answer)])
		answer = answer[:len(answer)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Advice{}
		}
	}
	if len(answer) == cap(answer) && !ended(answer) {
		return Advice{} // the last word is cut off, and may mean something else
	}
	return ParseAdvice(string(answer))
}

// ended reports whether the first line is complete.
func ended(answer []byte) bool {
	return bytes.ContainsRune(bytes.TrimLeft(answer, "\r\n"), '\n')
}
