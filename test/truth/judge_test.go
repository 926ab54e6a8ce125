package truth

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/hostview"
	"fairlead/internal/model"
)

// Judgement is how a verdict compares with the packet's fate.
type Judgement string

// The judgements.
const (
	Right   Judgement = "right"
	Unknown Judgement = "unknown" // the verdict says that it is not certain, and why
	Wrong   Judgement = "wrong"
)

// Flow is a flow through a host: `PLACE[6] to PLACE[6]|ADDRESS:PORT[/udp]`. A 6 stands for
// the place's IPv6 address.
type Flow struct {
	Text string
	// From is where it begins, and Dial what its client dials.
	From string
	Dial netip.AddrPort
	UDP  bool
	// Question is the flow in the syntax of flow.Parse.
	Question string
}

// ParseFlow reads a flow.
func ParseFlow(text string) (Flow, error) {
	from, to, ok := strings.Cut(text, " to ")
	if !ok {
		return Flow{}, fmt.Errorf("flow %q: want FROM to TO:PORT", text)
	}
	f := Flow{Text: text, From: strings.TrimSuffix(from, "6")}
	family := map[bool]int{true: 1}[f.From != from]
	to, _, f.UDP = strings.Cut(to, "/")
	i := strings.LastIndexByte(to, ':')
	to, port := to[:max(i, 0)], to[i+1:]
	if a, ok := addresses[strings.TrimSuffix(to, "6")]; ok {
		if strings.TrimSuffix(to, "6") == "host" {
			a = gateways[f.From]
		}
		to = a[family]
	}
	if strings.Contains(to, ":") {
		to = "[" + strings.Trim(to, "[]") + "]"
	}
	var err error
	if f.Dial, err = netip.ParseAddrPort(to + ":" + port); err != nil {
		return f, fmt.Errorf("flow %q: %w", text, err)
	}
	client := f.From
	if f.From == "lan" {
		client = addresses["lan"][family]
	}
	f.Question = fmt.Sprintf("%s to %s", client, f.Dial)
	if f.UDP {
		f.Question += "/udp"
	}
	return f, nil
}

// Checked is a flow with what Fairlead says of it and its fate.
type Checked struct {
	Flow
	flow.Explanation
	Fate Fate
	Judgement
}

// Certain reports whether the verdict says with certainty how the flow ends.
func (c Checked) Certain() bool {
	return !c.Uncertain && c.Outcome != flow.Unknown && c.Outcome != flow.Leaves
}

// String shows the flow, its fate and its verdict.
func (c Checked) String() string {
	return fmt.Sprintf("%-28s %s %q, %s: %s (certain: %v): %s %v", c.Text, c.Fate.Result, c.Fate.By, c.Judgement,
		c.Outcome,
		c.Certain(), c.Verdict, c.Caveats)
}

// Explain explains flows through the host, and then sends all of them.
func (h *Host) Explain(t testing.TB, flows []string) []Checked {
	t.Helper()
	w, err := h.World()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	all := make([]Checked, len(flows))
	for i, text := range flows {
		all[i] = explain(t, w, text)
	}
	var sent sync.WaitGroup
	for i := range all {
		sent.Go(func() { all[i].send(t, h) })
	}
	sent.Wait()
	return all
}

func explain(t testing.TB, w *hostview.World, text string) Checked {
	t.Helper()
	f, err := ParseFlow(text)
	if err != nil {
		t.Fatal(err)
	}
	asked, err := flow.Parse([]string{f.Question})
	if err != nil {
		t.Fatal(err)
	}
	e, err := flow.Explain(w.Facts(), asked)
	if err != nil && f.From == "lan" && strings.Contains(err.Error(), "the host has no route to it") {
		e.Uncertain, e.Proto, e.Notes = true, asked.Proto, []string{err.Error()}
		err = nil
	}
	if err != nil {
		t.Fatalf("%s: %v", f.Question, err)
	}
	return Checked{Flow: f, Explanation: e}
}

// send sends the flow, and judges the verdict.
func (c *Checked) send(t testing.TB, h *Host) {
	timeout := unexpected
	if c.Certain() && (c.Outcome == flow.Delivered || c.Outcome == flow.Refused) {
		timeout = expected
	}
	var err error
	if c.Fate, err = Send(h.Places[c.From], c.Dial, c.Proto == model.UDP, timeout); err != nil {
		t.Error(err)
		return
	}
	c.Judgement = c.judge()
}

// results are the fates that agree with an outcome.
var results = map[flow.Outcome][]string{flow.Delivered: {Answered}, flow.Refused: {Refused},
	flow.Dropped: {Lost, Refused}, flow.NoRoute: {Lost}}

// fate returns how the packet ended. A connection over which nothing comes is lost.
func (c *Checked) fate() string {
	if c.Fate.Result == Answered && c.Fate.By == "" {
		return Lost
	}
	return c.Fate.Result
}

// judge compares the verdict with the fate. A verdict that is not certain must name a
// reason.
func (c *Checked) judge() Judgement {
	switch {
	case !c.Certain() && c.Uncertain && len(c.Caveats)+len(c.Notes) == 0:
		return Wrong
	case !c.Certain():
		return Unknown
	case !slices.Contains(results[c.Outcome], c.fate()):
		return Wrong
	case c.Outcome == flow.Delivered && c.Fate.By != c.socket():
		return Wrong
	}
	return Right
}

// socket returns the socket that the verdict names, as the socket introduces itself.
func (c *Checked) socket() string {
	for _, h := range slices.Backward(c.Hops) {
		if h.Kind == flow.Delivery {
			return h.Where + " " + h.By
		}
	}
	return ""
}

// Path lists the hops of an explanation for a reader.
func Path(e flow.Explanation) string {
	var b strings.Builder
	for _, h := range e.Hops {
		fmt.Fprintf(&b, "  %s %s %s: %s [%s]\n", h.Kind, h.Where, h.Link, h.What, h.By)
	}
	return b.String()
}
