package trust_test

import (
	"strings"
	"testing"
	"time"

	"fairlead/internal/cluster/trust"
)

// TestGreeting reads greetings, and texts that no node of the cluster has made for this node now.
func TestGreeting(t *testing.T) {
	key, other := trust.NewClusterKey(), trust.NewClusterKey()
	one, two, now := trust.NewID(), trust.NewID(), time.Now()
	greeting := trust.Greeting(key, one, two, now)
	for _, off := range []time.Duration{0, 9 * time.Minute, -9 * time.Minute} {
		if from, ok := trust.Greeted(key, two, greeting, now.Add(off)); !ok || from != one {
			t.Errorf("a greeting, read %s later: %q, %v", off, from, ok)
		}
	}
	for what, name := range map[string]string{
		"nothing": "", "a host": "fairlead.example.org", "another node's name": two + greeting[len(two):],
		"another cluster's": trust.Greeting(other, one, two, now),
		"for another node":  trust.Greeting(key, two, one, now),
		"an old one":        trust.Greeting(key, one, two, now.Add(-11*time.Minute)), "cut off": greeting[:len(greeting)-1],
		"another time": strings.Replace(greeting, ".", ".0", 1),
	} {
		if from, ok := trust.Greeted(key, two, name, now); ok || from != "" {
			t.Errorf("%s: %q is accepted from %s", what, name, from)
		}
	}
}
