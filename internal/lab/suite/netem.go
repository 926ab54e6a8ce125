package suite

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"fairlead/internal/lab/result"
)

// netemForm is the form of network conditions, for errors.
const netemForm = "want conditions like delay=5ms,jitter=1ms,loss=0.1%,rate=1gbit,limit=1000"

// ParseNetem parses network conditions: NAME=VALUE, separated by commas. Returns nil for
// an empty text.
func ParseNetem(text string) (*result.Netem, error) {
	if text == "" {
		return nil, nil
	}
	n, seen := &result.Netem{}, map[string]bool{}
	for _, part := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || value == "" {
			return nil, fmt.Errorf("netem %q: %s", part, netemForm)
		}
		if seen[name] {
			return nil, fmt.Errorf("netem %s: it is given twice", name)
		}
		seen[name] = true
		if err := setNetem(n, name, value); err != nil {
			return nil, fmt.Errorf("netem %s %q: %w", name, value, err)
		}
	}
	return n, n.Check()
}

func setNetem(n *result.Netem, name, value string) (err error) {
	switch name {
	case "delay":
		n.Delay, err = netemTime(value)
	case "jitter":
		n.Jitter, err = netemTime(value)
	case "loss":
		n.Loss, err = netemShare(value)
	case "rate":
		n.Rate, err = netemRate(value)
	case "limit":
		if n.Limit, err = strconv.Atoi(value); err != nil || n.Limit < 1 {
			err = fmt.Errorf("want a number of packets, e.g. 1000")
		}
	default:
		err = fmt.Errorf("there is no such condition: %s", netemForm)
	}
	return err
}

// netemTime parses a time with its unit, in seconds.
func netemTime(text string) (float64, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("want a time with its unit, e.g. 5ms or 200us")
	}
	return d.Seconds(), nil
}

// netemShare parses a percentage.
func netemShare(text string) (float64, error) {
	digits, ok := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(digits, 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("want a percentage, e.g. 0.1%%")
	}
	return v / 100, nil
}

// netemRates are the units of rates, as tc(8) has them; the longer ones are first.
var netemRates = []struct {
	unit string
	bits float64
}{{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"bit", 1}}

// netemRate parses a rate in bit/s.
func netemRate(text string) (float64, error) {
	for _, u := range netemRates {
		if digits, ok := strings.CutSuffix(strings.ToLower(text), u.unit); ok {
			if v, err := strconv.ParseFloat(digits, 64); err == nil {
				return v * u.bits, nil
			}
		}
	}
	return 0, fmt.Errorf("want a rate with its unit, e.g. 1gbit, 100mbit or 500kbit")
}

// WithoutNetem returns why network conditions cannot be set for the path between two
// machines; "" if they can.
func (p Path) WithoutNetem() string {
	if p.Driver.Traits().OnLAN {
		return "between two machines, netem does not apply to the sandbox, whose link is on the network itself"
	}
	return ""
}

// conditions returns an error if the suite's network conditions do not apply to one of its
// clients, whose packets do not cross the wire.
func (s Suite) conditions() error {
	if s.Netem == nil {
		return nil
	}
	for _, w := range s.Workloads {
		if w.Event.OfHolder() {
			return fmt.Errorf("netem sets conditions of the wire, which hosts with a virtual address do not have: "+
				"choose other workloads than %s", w.Name)
		}
		if w.Visits != nil {
			return fmt.Errorf("netem sets conditions of the wire, which a web site does not have: choose other "+
				"workloads than %s", w.Name)
		}
	}
	for _, c := range s.Clients {
		if c != result.Remote {
			return fmt.Errorf("netem sets conditions of the wire, which packets of the client %s do not cross: add "+
				"--client remote", c)
		}
	}
	return nil
}
