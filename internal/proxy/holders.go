package proxy

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead/internal/model"
)

// holders lists the inodes of the sockets that listen on (TCP) or are bound to
// (UDP) each port at any address. It is used only where a new wildcard socket
// overlaps narrower sockets of this proxy, because then bind's own check does
// not find the sockets of other processes.
type holders struct {
	tables map[string]map[uint16][]uint64
}

// usedByOther reports whether a socket that is not in ours has the port of the
// wildcard k at any address.
func (h *holders) usedByOther(k socketKey, ours []*socket) (bool, error) {
	var others []uint64
	for _, path := range k.tables() {
		t, err := h.table(path, k.proto)
		if err != nil {
			return false, err
		}
		others = append(others, t[k.addr.Port()]...)
	}
	mine := map[uint64]bool{}
	for _, s := range ours {
		var st unix.Stat_t
		if err := unix.Fstat(s.fd, &st); err != nil {
			return false, fmt.Errorf("identify socket: %w", err)
		}
		mine[st.Ino] = true
	}
	for _, other := range others {
		if !mine[other] {
			return true, nil
		}
	}
	return false, nil
}

// tables returns the kernel's lists of sockets that can conflict with k.
func (k socketKey) tables() []string {
	path := "/proc/thread-self/net/" + string(k.proto)
	switch {
	case k.dual():
		return []string{path, path + "6"}
	case k.addr.Addr().Is4():
		return []string{path}
	default:
		return []string{path + "6"}
	}
}

// table reads one of the kernel's lists once.
func (h *holders) table(path string, proto model.Proto) (map[uint16][]uint64, error) {
	if t, ok := h.tables[path]; ok {
		return t, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("list sockets: %w", err)
	}
	defer f.Close()
	t, err := parseHolders(f, proto)
	if err != nil {
		return nil, fmt.Errorf("list sockets in %s: %w", path, err)
	}
	if h.tables == nil {
		h.tables = map[string]map[uint16][]uint64{}
	}
	h.tables[path] = t
	return t, nil
}

// parseHolders reads the format of /proc/net/tcp.
func parseHolders(r io.Reader, proto model.Proto) (map[uint16][]uint64, error) {
	const listening = "0A"
	sockets := map[uint16][]uint64{}
	lines := bufio.NewScanner(r)
	lines.Scan() // the heading
	for lines.Scan() {
		field := strings.Fields(lines.Text())
		if len(field) < 10 {
			return nil, fmt.Errorf("parse %q: want 10 fields", lines.Text())
		}
		if proto == model.TCP && field[3] != listening {
			continue
		}
		_, hex, _ := strings.Cut(field[1], ":")
		port, err := strconv.ParseUint(hex, 16, 16)
		if err != nil {
			return nil, fmt.Errorf("parse port: %w", err)
		}
		inode, err := strconv.ParseUint(field[9], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("parse inode: %w", err)
		}
		sockets[uint16(port)] = append(sockets[uint16(port)], inode)
	}
	return sockets, lines.Err()
}
