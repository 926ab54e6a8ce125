package startup

import (
	"net"
	"strings"
	"testing"
)

// TestAskedUntilAnswered: who does not listen yet is asked again.
func TestAskedUntilAnswered(t *testing.T) {
	for _, proto := range []string{"tcp", "udp"} {
		addr := unused(t)
		replied := make(chan string)
		go func() { replied <- askUntil(proto, addr, "right") }()
		if err := listen(proto, addr, []byte("right")); err != nil {
			t.Fatal(err)
		}
		if got := <-replied; got != Answered {
			t.Errorf("%s: %s", proto, got)
		}
		if got, err := ask(proto, addr); got != "right" || err != nil {
			t.Errorf("%s: %q, %v", proto, got, err)
		}
	}
}

func TestQuestionIsALineOfThree(t *testing.T) {
	if got := Question("udp", "192.0.2.1:80", "x"); len(strings.Fields(got)) != 3 || !strings.HasSuffix(got, "\n") {
		t.Errorf("%q", got)
	}
}

// unused is an address that nobody listens on.
func unused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
