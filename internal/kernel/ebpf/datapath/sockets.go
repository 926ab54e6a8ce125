package datapath

import (
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/rawtcp"
	"fairlead/internal/kernel/sockdiag"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// endRounds limits how often the sockets without a port mapping are listed and
// ended. Usually the second list is empty. But one list may miss one of hundreds
// of sockets, and of several sockets with the same addresses and ports
// (SO_REUSEPORT) the kernel ends only the first that it finds. A socket that does
// not end is just being closed.
const endRounds = 10

// endLocal ends sockets of the host's processes that were redirected to an
// endpoint by a port mapping that no longer exists. The peers of TCP sockets get
// a reset. These sockets are connected to the endpoint directly, so removing the
// port mapping does not end them.
func (h *Handle) endLocal(p *ebpf.Datapath) error {
	return h.ns.Do(func() error {
		for range endRounds {
			incomplete, err := p.Incomplete()
			if err != nil {
				return fmt.Errorf("list redirected sockets: %w", err)
			}
			if len(incomplete) == 0 {
				break
			}
			if err := destroy(incomplete); err != nil {
				return fmt.Errorf("destroy a socket that was redirected to an endpoint: %w", err)
			}
		}
		return nil
	})
}

// destroy ends the sockets that the requests name, as `ss --kill` does.
func destroy(requests []byte) error {
	s, err := nl.Subscribe(unix.NETLINK_INET_DIAG)
	if err != nil {
		return fmt.Errorf("open sock_diag: %w", err)
	}
	defer s.Close()
	for r := range slices.Chunk(requests, sockdiag.RequestLen) {
		req := nl.NewNetlinkRequest(nl.SOCK_DESTROY, unix.NLM_F_ACK)
		req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_INET_DIAG: {Socket: s}}
		req.AddData(sockdiag.Request(r))
		// ENOENT: the socket has already ended.
		if _, err := req.Execute(unix.NETLINK_INET_DIAG, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// resetFlow sends a TCP reset to both ends of a connection, each with the source
// address and port of the other end. The sequence number is the last one that the
// receiver has acknowledged. If more data was in flight, the receiver sends a
// challenge ACK (RFC 5961), and the host, which has no such socket, answers with a
// reset.
func resetFlow(f ebpf.Flow) error {
	return errors.Join(
		rawtcp.SendReset(f.Host, f.Client, f.Acknowledged[0]),
		rawtcp.SendReset(f.Seen, f.Endpoint, f.Acknowledged[1]))
}
