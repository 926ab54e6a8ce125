package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/unixsock"
)

// A proxy of a new version (the successor) takes over from a running one (the
// predecessor): it gets copies of all sockets over the control socket
// (SCM_RIGHTS), serves them, and only then asks the predecessor to leave. The
// accept queue belongs to the listening socket, not to a process, so no client
// is refused at any moment.
//
//	successor            predecessor
//	    │──── sockets? ──────▶│
//	    │◀── keys, copies ────│   both serve
//	    │──── leave ─────────▶│   keeps its connections, ends with the last
//	    │──── curtail ───────▶│   … or when their ports are unpublished

// handOverLimit limits the duration of a whole handover.
const handOverLimit = 10 * time.Second

// handoverMessage names the sockets whose copies come with the message, in this
// order. The last message is the response.
type handoverMessage struct {
	Sockets []inheritedSocket `json:"sockets,omitempty"`
	response
}

// inheritedSocket is a socketKey. It has no AddrPort, because an AddrPort without
// an address has no text form.
type inheritedSocket struct {
	Proto model.Proto `json:"proto"`
	Host  netip.Addr  `json:"host"`
	Port  uint16      `json:"port"`
}

// handOver sends copies of all sockets to a successor.
func (r *registry) handOver(to io.ReadWriter) error {
	conn, ok := to.(*net.UnixConn)
	if !ok {
		return errors.New("hand over sockets: the requester is not a successor")
	}
	if err := conn.SetWriteDeadline(time.Now().Add(handOverLimit)); err != nil {
		return fmt.Errorf("hand over sockets: %w", err)
	}
	var batch []inheritedSocket
	var fds []int
	flush := func() error {
		text, err := json.Marshal(handoverMessage{Sockets: batch})
		if err != nil {
			return fmt.Errorf("hand over sockets: %w", err)
		}
		n, _, err := conn.WriteMsgUnix(text, unix.UnixRights(fds...), nil)
		if err == nil && n < len(text) {
			_, err = conn.Write(text[n:])
		}
		if err != nil {
			return fmt.Errorf("hand over sockets: %w", err)
		}
		batch, fds = nil, nil
		return nil
	}
	for key, s := range r.sockets {
		batch = append(batch, inheritedSocket{key.proto, key.addr.Addr(), key.addr.Port()})
		fds = append(fds, s.fd)
		if len(batch) == unixsock.Batch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return flush()
}

// release closes all sockets, also with queued clients, and ends all UDP flows.
// TCP connections continue.
func (r *registry) release() {
	changes := map[*worker]*change{}
	flows := map[*group]bool{}
	for _, s := range r.sockets {
		r.leave(changes, s)
		if s.group != nil && s.group.Proto == model.UDP {
			flows[s.group] = true
		}
	}
	r.onOwners(changes, (*worker).withdraw)
	everywhere(r.workers, func(w *worker) { w.end(flows) })
	r.sockets = map[socketKey]*socket{}
}

// curtail ends the connections of groups that are not in cfg.
func (r *registry) curtail(cfg Config) {
	want := wanted{groups: map[plan.Listener]*group{}}
	for _, l := range cfg.Listeners {
		if g := r.groups[l]; g != nil {
			want.groups[l] = g
		}
	}
	if dead := r.deadGroups(want); len(dead) > 0 {
		everywhere(r.workers, func(w *worker) { w.end(dead) })
	}
	r.groups, r.config = want.groups, cfg
}

// takeOver fills the empty registry with copies of the sockets of the proxy at a
// control socket, and asks that proxy to leave. It returns the handle for that
// proxy, or nil if that proxy had to be killed.
func (r *registry) takeOver(path string) (*Proxy, error) {
	conn, err := net.DialTimeout("unix", path, handOverLimit)
	if err != nil {
		return nil, fmt.Errorf("take over: %w", err)
	}
	before := conn.(*net.UnixConn)
	who, err := unixsock.PeerOf(before)
	if err != nil || !who.Trusted() {
		return nil, errors.Join(fmt.Errorf("take over: %s belongs to another user", path), err, before.Close())
	}
	err = before.SetDeadline(time.Now().Add(handOverLimit))
	if err == nil {
		err = r.inherit(before)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take over: %w", err), before.Close())
	}
	// From now on this proxy serves, whatever the predecessor does. If that does
	// not confirm that it has left, it is killed: it must not keep sockets that
	// this proxy may close later.
	var left response
	err = json.NewEncoder(before).Encode(request{ID: 2, Ask: askLeave})
	if err == nil {
		err = json.NewDecoder(before).Decode(&left)
	}
	if err == nil {
		err = errors.Join(left.err(), before.SetDeadline(time.Time{}))
	}
	if err != nil {
		_ = unix.Kill(int(who.Pid), unix.SIGKILL) // it may have ended already
		return nil, before.Close()
	}
	p := newHandle(nil, 0, before)
	p.last = left.ID
	return p, nil
}

// inherit gets copies of a predecessor's sockets and serves them.
func (r *registry) inherit(from *net.UnixConn) error {
	sockets, cfg, err := receiveSockets(from)
	if err == nil {
		var want wanted
		var opened map[socketKey]*socket
		if want, err = r.resolve(cfg); err == nil {
			opened, err = adoptSockets(want, sockets)
		}
		if err == nil {
			return r.commit(cfg, want, opened)
		}
	}
	for _, fd := range sockets {
		closeFD(fd)
	}
	return err
}

// adoptSockets wraps the copies into sockets, all of them or none.
func adoptSockets(want wanted, sockets map[socketKey]int) (map[socketKey]*socket, error) {
	opened := make(map[socketKey]*socket, len(want.places))
	for key, at := range want.places {
		fd, ok := sockets[key]
		if !ok {
			return nil, fmt.Errorf("the other proxy has not sent the socket of %s/%s", key.addr, key.proto)
		}
		opened[key] = &socket{fd: fd, group: at.group, offset: at.offset, open: at.group != nil ||
			key.proto == model.UDP}
	}
	if len(opened) < len(sockets) {
		return nil, errors.New("the other proxy has sent sockets that are not in its configuration")
	}
	return opened, nil
}

// receiveSockets asks for copies of a predecessor's sockets.
func receiveSockets(from *net.UnixConn) (map[socketKey]int, Config, error) {
	sockets := map[socketKey]int{}
	if err := json.NewEncoder(from).Encode(request{ID: 1, Ask: askSockets}); err != nil {
		return sockets, Config{}, err
	}
	var keys []inheritedSocket
	rights := &rightsReader{from: from}
	for messages := json.NewDecoder(rights); ; {
		var m handoverMessage
		err := messages.Decode(&m)
		if err == nil {
			err = m.err()
		}
		keys = append(keys, m.Sockets...)
		if err == nil && m.Config == nil {
			continue
		}
		if err == nil && len(keys) != len(rights.Descriptors) {
			err = fmt.Errorf("%d sockets announced, but %d received", len(keys), len(rights.Descriptors))
		}
		if err != nil {
			unixsock.CloseAll(rights.Descriptors)
			return sockets, Config{}, err
		}
		for i, k := range keys {
			sockets[socketKey{k.Proto, netip.AddrPortFrom(k.Host, k.Port)}] = rights.Descriptors[i]
		}
		return sockets, *m.Config, nil
	}
}

// rightsReader reads a stream and gathers the descriptors that come with it.
type rightsReader struct {
	from *net.UnixConn
	unixsock.Ancillary
}

// Read implements io.Reader.
func (r *rightsReader) Read(b []byte) (int, error) { return r.Ancillary.Read(r.from, b) }
