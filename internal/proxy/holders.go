package proxy

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead/internal/model"
)

// holders knows which addresses are listened on (TCP) or bound (UDP), and
// by which sockets. It is asked only where a new socket has to be bound
// around narrower ones of ours, which hides strangers from bind's own check.
type holders struct {
	tables map[string]map[uint16][]holder
}

type holder struct {
	addr  netip.AddrPort
	inode uint64
}

// stranger reports whether a socket that is not one of ours holds an address
// that the wildcard k covers.
func (h *holders) stranger(k socketKey, ours []*socket) (bool, error) {
	table, err := h.table(k)
	if err != nil {
		return false, err
	}
	mine := map[uint64]bool{}
	for _, s := range ours {
		var st unix.Stat_t
		if err := unix.Fstat(s.fd, &st); err != nil {
			return false, fmt.Errorf("identify socket: %w", err)
		}
		mine[st.Ino] = true
	}
	for _, other := range table[k.addr.Port()] {
		if !mine[other.inode] {
			return true, nil
		}
	}
	return false, nil
}

// table reads the kernel's list for the key's protocol and family once.
func (h *holders) table(k socketKey) (map[uint16][]holder, error) {
	path := "/proc/thread-self/net/" + string(k.proto)
	if k.addr.Addr().Is6() {
		path += "6"
	}
	if t, ok := h.tables[path]; ok {
		return t, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("list sockets: %w", err)
	}
	defer f.Close()
	t, err := parseHolders(f, k.proto)
	if err != nil {
		return nil, fmt.Errorf("list sockets in %s: %w", path, err)
	}
	if h.tables == nil {
		h.tables = map[string]map[uint16][]holder{}
	}
	h.tables[path] = t
	return t, nil
}

// parseHolders reads the format of /proc/net/tcp.
func parseHolders(r io.Reader, proto model.Proto) (map[uint16][]holder, error) {
	const listening = "0A"
	held := map[uint16][]holder{}
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
		addr, err := parseProcAddr(field[1])
		if err != nil {
			return nil, err
		}
		inode, err := strconv.ParseUint(field[9], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("parse inode: %w", err)
		}
		held[addr.Port()] = append(held[addr.Port()], holder{addr, inode})
	}
	return held, lines.Err()
}

// parseProcAddr reads "0100007F:1F90": the address as 32-bit words in the
// machine's byte order, then the port.
func parseProcAddr(s string) (netip.AddrPort, error) {
	word, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(word)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("parse address %q: %w", s, err)
	}
	for i := 0; i+4 <= len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	addr, ok := netip.AddrFromSlice(raw)
	n, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil {
		return netip.AddrPort{}, fmt.Errorf("parse address %q: want ADDRESS:PORT in hexadecimal", s)
	}
	return netip.AddrPortFrom(addr, uint16(n)), nil
}
