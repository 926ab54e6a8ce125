package promises_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/model"
	"fairlead/test/place"
)

// answerTimeout is how long a client tries. Only a missing answer shows that a packet was dropped,
// so a negative result without an error takes this long.
const answerTimeout = 6 * time.Second

// serve answers every line or datagram to one of the addresses in the place, over
// TCP and UDP, with the name and the sender's address.
func serve(t *testing.T, in place.Place, name string, addresses ...string) {
	t.Helper()
	for _, at := range addresses {
		place.Answer(t, in, at, replies(name))
	}
}

func replies(name string) func(place.Request) string {
	return func(r place.Request) string { return fmt.Sprint(name, " ", r.Client.Addr()) }
}

// talk is an open conversation with a workload.
type talk struct{ conn net.Conn }

// dial opens a conversation from the place. For UDP it only creates the socket.
func dial(from place.Place, proto model.Proto, to netip.AddrPort) (t talk, err error) {
	t.conn, err = place.Dial(from, string(proto), to.String(), answerTimeout)
	return t, err
}

// ask sends a word, repeatedly over UDP, and returns the server's name and the address that the
// server sees.
func (t talk) ask() (name string, seen netip.Addr, err error) {
	deadline := time.Now().Add(answerTimeout)
	again := deadline
	if t.conn.RemoteAddr().Network() == "udp" {
		again = time.Now().Add(answerTimeout / 20)
	}
	buf := make([]byte, 128)
	for n := 0; ; {
		if _, err = t.conn.Write([]byte("hello\n")); err == nil {
			t.conn.SetReadDeadline(again)
			n, err = t.conn.Read(buf)
		}
		var timeout net.Error
		switch {
		case err == nil:
			word, addr, _ := strings.Cut(strings.TrimSpace(string(buf[:n])), " ")
			seen, err = netip.ParseAddr(addr)
			return word, seen, err
		case errors.As(err, &timeout) && timeout.Timeout() && again.Before(deadline):
			again = again.Add(answerTimeout / 20)
		default:
			return "", netip.Addr{}, err
		}
	}
}

// ask opens a conversation, sends one request and closes it.
func ask(from place.Place, proto model.Proto, to netip.AddrPort) (name string, seen netip.Addr, err error) {
	t, err := dial(from, proto, to)
	if err != nil {
		return "", netip.Addr{}, err
	}
	defer t.conn.Close()
	return t.ask()
}

// reaches returns the result of one request to the workload with that name.
func reaches(from place.Place, proto model.Proto, to netip.AddrPort, want string) result {
	name, _, err := ask(from, proto, to)
	return answered(to, name, want, err)
}

func answered(to netip.AddrPort, name, want string, err error) result {
	switch {
	case err != nil:
		return result{because: err.Error()}
	case name != want:
		return result{err: fmt.Errorf("%s was answered by %q, not by %s", to, name, want)}
	}
	return result{kept: true, because: to.String() + " answered"}
}

// sees checks the client's address: the promise is kept if the workload sees a matching address. A
// missing answer is an error.
func sees(from place.Place, proto model.Proto, to netip.AddrPort, want string, fits func(netip.Addr) bool) result {
	name, seen, err := ask(from, proto, to)
	if f := answered(to, name, want, err); !f.kept {
		return result{err: errors.Join(errors.New("no answer: "+f.because), f.err)}
	}
	return result{kept: fits(seen), because: "the workload sees " + seen.String()}
}
