package daemon_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/model"
	"fairlead/test/place"
)

// policies is a command for the IPsec policies between the host and the client. With
// "level use" the kernel encrypts if it has a key. It has none, so packets that pass the
// kernel's IP stack arrive.
const policies = "ip xfrm policy %[1]s src %[3]s dst %[2]s dir in %[4]s; ip xfrm policy %[1]s src %[2]s dst %[3]s dir out %[4]s"

const (
	levelUse = "tmpl proto esp mode transport level use"
	clients4 = "198.51.100.1"
)

// TestFollowIPsecPolicies adds IPsec policies for an IPv4 client, and deletes them. The
// publish via auto uses nat meanwhile. Via ebpf the kernel refuses the client's packets,
// also those of an open connection, and clients without a policy are served.
func TestFollowIPsecPolicies(t *testing.T) {
	w := newLANWorld(t)
	w.start()
	w.web(lan, model.Limit{}, append(published(model.ViaAuto, 8080), published(model.ViaEBPF, 8081)...))
	w.reached(8080, 8081)
	explicit := net.JoinHostPort(hosts4, "8081")
	open, err := place.Dial(w.client.Do, "tcp", explicit, place.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	w.sh(fmt.Sprintf(policies, "add", hosts4, clients4, levelUse))
	w.untilViaEBPF(8081)
	w.reached(8080)
	w.answers(w.client.Do, net.JoinHostPort(hosts6, "8081"))
	if err := untilError(open); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the open connection of the protected client ends with %v, want a reset by the kernel", err)
	}
	if _, err := place.Dial(w.client.Do, "tcp", explicit, place.Timeout); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the protected client reaches the port via ebpf: %v, want it refused", err)
	}
	w.sh(fmt.Sprintf(policies, "delete", hosts4, clients4, ""))
	w.untilViaEBPF(8080, 8081)
	w.reached(8080, 8081)
}

// untilViaEBPF waits until exactly these ports are published via ebpf.
func (w *lanWorld) untilViaEBPF(want ...uint16) {
	w.Helper()
	w.until(fmt.Sprintf("the ports %v are published via ebpf, and no others", want), func() bool {
		mappings, _, err := w.host.EBPF().EBPFMappings()
		if err != nil {
			w.Fatal(err)
		}
		var ports []uint16
		for _, m := range mappings {
			ports = append(ports, m.Ports.First)
		}
		slices.Sort(ports)
		return slices.Equal(slices.Compact(ports), want)
	})
}

// untilError writes to a connection and reads from it until it fails.
func untilError(conn net.Conn) error {
	for deadline := time.Now().Add(place.Timeout); ; {
		err := conn.SetDeadline(deadline)
		if err == nil {
			_, err = conn.Write([]byte("x"))
		}
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
}
