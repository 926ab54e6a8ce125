package result

import (
	"fmt"
	"strconv"
	"strings"
)

// Netem are conditions of the wire that the kernel emulated (tc-netem(8)), in each
// direction.
type Netem struct {
	// Delay of each packet and its Jitter are in seconds, for one direction.
	Delay  float64 `json:"delay,omitempty"`
	Jitter float64 `json:"jitter,omitempty"`
	// Loss is the share of lost packets, 0 to 1.
	Loss float64 `json:"loss,omitempty"`
	// Rate is in bit/s; 0 means no limit.
	Rate float64 `json:"rate,omitempty"`
	// Limit is the number of packets in the queue; 0 means netem's default, 1000.
	Limit int `json:"limit,omitempty"`
}

// String returns the conditions as the flag --netem has them; "none" for nil.
func (n *Netem) String() string {
	if n == nil {
		return "none"
	}
	var parts []string
	add := func(name string, value float64, unit string) {
		if value > 0 {
			parts = append(parts, name+"="+strconv.FormatFloat(value, 'g', 6, 64)+unit)
		}
	}
	add("delay", 1000*n.Delay, "ms")
	add("jitter", 1000*n.Jitter, "ms")
	add("loss", 100*n.Loss, "%")
	add("rate", n.Rate/1e6, "mbit")
	if n.Limit > 0 {
		parts = append(parts, fmt.Sprint("limit=", n.Limit))
	}
	return strings.Join(parts, ",")
}

// The bounds of the conditions. A connection needs less than a second for each round
// trip, or the generator reports that nothing answers.
const (
	maxDelay = 1.0
	maxLoss  = 0.5
	minRate  = 1e3
	maxRate  = 1e12
	maxLimit = 10_000_000
)

// Check returns an error for conditions that are out of range.
func (n *Netem) Check() error {
	switch {
	case n == nil:
		return nil
	case !(n.Delay >= 0 && n.Delay <= maxDelay):
		return fmt.Errorf("netem delay: want 0 to %g s", maxDelay)
	case !(n.Jitter >= 0 && n.Jitter <= n.Delay):
		return fmt.Errorf("netem jitter: want 0 to the delay, because the delay varies by up to the jitter")
	case !(n.Loss >= 0 && n.Loss <= maxLoss):
		return fmt.Errorf("netem loss: want 0 to %.0f %%", 100*maxLoss)
	case n.Rate != 0 && !(n.Rate >= minRate && n.Rate <= maxRate):
		return fmt.Errorf("netem rate: want 1kbit to 1000gbit")
	case n.Limit < 0 || n.Limit > maxLimit:
		return fmt.Errorf("netem limit: want 1 to %d packets", maxLimit)
	case *n == Netem{}:
		return fmt.Errorf("netem: no condition is set")
	}
	return nil
}
