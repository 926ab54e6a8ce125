package paths

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/driver"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/promise"
	"fairlead/internal/publish"
)

// Verdict is the result for one publish mode in a choice.
type Verdict string

// The verdicts.
const (
	Chosen Verdict = "chosen"
	// Costlier: the mode fits, but a cheaper one fits too.
	Costlier Verdict = "costlier"
	Refused  Verdict = "refused"
)

// Candidate is a publish mode that supports the driver. Verdict says whether Choose
// has chosen it, and Reason says why.
type Candidate struct {
	Via     model.Via `json:"via"`
	Verdict Verdict   `json:"verdict"`
	// Unkept is the first requested promise that the mode does not make. It is empty
	// if the mode was not refused for that.
	Unkept promise.Question `json:"unkept,omitempty"`
	Reason string           `json:"reason"`
}

// Choice is the chosen publish mode and the verdict for each candidate.
type Choice struct {
	// Via is the chosen mode. It is empty if no mode fits.
	Via model.Via `json:"via"`
	// Candidates are in the order of their cost, the cheapest first.
	Candidates []Candidate `json:"candidates"`
}

// ByCost returns every publish mode, the cheapest first.
func ByCost() []publish.Mode {
	modes := Modes()
	slices.Reverse(modes)
	return modes
}

// Choose returns the cheapest publish mode that can reach an endpoint of the
// driver and keeps every requested promise. A nil attachment means that no
// endpoint is known yet. If no mode fits, Choose returns an error, and the choice
// has the reasons.
func Choose(f plan.Facts, d driver.Driver, p model.Publish, at *plan.Attachment) (Choice, error) {
	asked, err := promise.Named(p.Promises)
	if err != nil {
		return Choice{}, err
	}
	choice := Choice{Candidates: []Candidate{}}
	for _, w := range ByCost() {
		if promises := PromisesTo(w, d.Name(), at); promises != nil {
			choice.weigh(Candidate{Via: w.Name(), Reason: obstacle(f, d, w, p, at)}, promises, asked)
		}
	}
	if choice.Via == "" && at != nil && at.Closed != "" {
		return choice, errors.New(at.Closed)
	}
	if choice.Via == "" {
		return choice, noMode(d.Name(), choice.Candidates)
	}
	return choice, nil
}

// weigh decides on the next candidate and adds it to the choice. If the mode cannot
// serve the publish, next.Reason is already set.
func (c *Choice) weigh(next Candidate, promises promise.Set, asked []promise.Question) {
	unkept, broken := promises.Unkept(asked)
	switch {
	case next.Reason != "":
		next.Verdict = Refused
	case broken:
		next.Verdict, next.Unkept, next.Reason = Refused, unkept, denial(promises, unkept)
	case c.Via != "":
		next.Verdict, next.Reason = Costlier, "it fits, but a cheaper mode fits too"
	default:
		next.Verdict, next.Reason = Chosen, praise(promises, asked)
		c.Via = next.Via
	}
	c.Candidates = append(c.Candidates, next)
}

// obstacle returns why the mode cannot serve the publish, whatever it promises.
// It is empty if the mode can.
func obstacle(f plan.Facts, d driver.Driver, w publish.Mode, p model.Publish, at *plan.Attachment) string {
	if missing := Missing(f, slices.Concat(d.Needs(), w.Needs())); missing != "" {
		return "this kernel does not support it: " + missing
	}
	if err := w.Validate(p); err != nil {
		return err.Error()
	}
	if at != nil {
		if err := w.Reaches(*at); err != nil {
			return err.Error()
		}
	}
	if w.Carrier() == model.CarrierPrograms {
		return protected(f, p.Proto, publish.Hosts(p), p.HostPorts)
	}
	return ""
}

// protected returns why a mode or data plane that bypasses IPsec cannot serve the ports
// of these host addresses. It is empty if no IPsec policy of the host covers them.
func protected(f plan.Facts, proto model.Proto, hosts []netip.Addr, ports model.PortRange) string {
	for _, policy := range f.IPsec {
		for _, host := range hosts {
			if policy.CoversPort(proto, host, ports) {
				return fmt.Sprintf("an IPsec policy of the host covers clients of the port (%s), and redirected packets bypass IPsec",
					policy)
			}
		}
	}
	return ""
}

// PromisesTo returns what the mode promises for an endpoint of the driver; nil if the
// mode does not support the driver. A nil attachment means that no endpoint is known
// yet.
func PromisesTo(w publish.Mode, d model.Driver, at *plan.Attachment) promise.Set {
	all := w.Promises(d)
	if at == nil || !at.Away || all == nil {
		return all
	}
	all = maps.Clone(all)
	for _, q := range []promise.Question{promise.LANSource, promise.PeerSource} {
		if all[q].Kept {
			all[q] = promise.No("clients are masqueraded, because the sandbox's default route is on another network")
		}
	}
	return all
}

// Keeps returns an error if the user requests a promise that the mode of the publish
// does not keep for an endpoint of this driver. A nil attachment means that no endpoint
// is known yet.
func Keeps(d model.Driver, p model.Publish, at *plan.Attachment) error {
	asked, err := promise.Named(p.Promises)
	if err != nil || len(asked) == 0 {
		return err
	}
	w, ok := Mode(p.Via)
	if !ok {
		return nil
	}
	promises := PromisesTo(w, d, at)
	if promises == nil {
		return nil // Reaches returns the error
	}
	if unkept, broken := promises.Unkept(asked); broken {
		return fmt.Errorf("%s: publish via auto to choose a mode that does, or leave the promise out",
			denial(promises, unkept))
	}
	return nil
}

func denial(promises promise.Set, q promise.Question) string {
	return fmt.Sprintf("it does not promise %s: %s", q, promises[q].How)
}

// praise returns the reason of the chosen mode. It quotes how each requested promise
// is kept, because the promise may have a limit that the user must know.
func praise(promises promise.Set, asked []promise.Question) string {
	if len(asked) == 0 {
		return "the cheapest"
	}
	var kept []string
	for _, q := range asked {
		text := string(q)
		if how := promises[q].How; how != "" {
			text += " (" + how + ")"
		}
		kept = append(kept, text)
	}
	return "the cheapest that promises " + strings.Join(kept, ", ")
}

func noMode(d model.Driver, candidates []Candidate) error {
	if len(candidates) == 0 {
		return fmt.Errorf("no publish mode supports driver %s: use a network with another driver", d)
	}
	var refused []string
	for _, c := range candidates {
		refused = append(refused, fmt.Sprintf("%s (%s)", c.Via, c.Reason))
	}
	return fmt.Errorf("no publish mode fits: %s: ask for fewer promises, or use a network with another driver",
		strings.Join(refused, "; "))
}
