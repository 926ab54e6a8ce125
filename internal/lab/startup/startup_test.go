package startup

import (
	"strings"
	"testing"

	"fairlead/internal/kernel/netns"
	"fairlead/test/shell"
)

// TestAskedUntilAnswered: the asker repeats its question until there is a
// listener.
func TestAskedUntilAnswered(t *testing.T) {
	// A separate network namespace, where no other process uses the port.
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	shell.Run(t, ns.Do, "ip link set lo up")
	const addr = "127.0.0.1:80"
	for _, proto := range []string{"tcp", "udp"} {
		replied := make(chan string, 1)
		go func() {
			if err := ns.Do(func() error { replied <- askUntil(proto, addr, "right"); return nil }); err != nil {
				replied <- err.Error()
			}
		}()
		if err := ns.Do(func() error { return listen(proto, addr, []byte("right")) }); err != nil {
			t.Fatal(err)
		}
		if got := <-replied; got != Answered {
			t.Errorf("%s: %s", proto, got)
		}
	}
}

func TestQuestionHasThreeFields(t *testing.T) {
	if got := Question("udp", "192.0.2.1:80", "x"); len(strings.Fields(got)) != 3 || !strings.HasSuffix(got, "\n") {
		t.Errorf("%q", got)
	}
}
