package ipvs

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"fairlead/internal/kernel/conntrack"
	"fairlead/internal/model"
)

// Flows returns the flows of IPVS that match; none if IPVS is not loaded. IPVS
// shows them only in a file with one line per flow (ip_vs_conn_seq_show in
// net/netfilter/ipvs/ip_vs_conn.c):
//
//	Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
//	TCP C6336401 C5A8 C0000250 1F90 AC1E000B 0050 ESTABLISHED     897
func (h *Handle) Flows(match func(conntrack.Flow) bool) (found []conntrack.Flow, err error) {
	err = h.ns.Do(func() error {
		table, err := os.Open("/proc/thread-self/net/ip_vs_conn")
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list IPVS connections: %w", err)
		}
		defer table.Close()
		found, err = readIPVSFlows(table, match)
		return err
	})
	return found, err
}

func readIPVSFlows(table io.Reader, match func(conntrack.Flow) bool) (found []conntrack.Flow, err error) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		if f, ok := ipvsFlow(lines.Text()); ok && match(f) {
			found = append(found, f)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read IPVS connections: %w", err)
	}
	return found, nil
}

// ipvsStates are the states of TCP connections that are open at one end at least.
var ipvsStates = map[string]bool{"ESTABLISHED": true, "FIN_WAIT": true, "CLOSE_WAIT": true, "LAST_ACK": true}

// ipvsFlow parses a line, and reports whether it is a TCP or UDP flow. An entry
// without a client port is a persistence template, not a flow.
func ipvsFlow(line string) (f conntrack.Flow, ok bool) {
	words := strings.Fields(line)
	if len(words) < 8 {
		return f, false
	}
	f.Proto, ok = map[string]model.Proto{"TCP": model.TCP, "UDP": model.UDP}[words[0]]
	for i, at := range []*netip.AddrPort{&f.Client, &f.Host, &f.Target} {
		addr := ipvsAddr(words[1+2*i])
		port, err := strconv.ParseUint(words[2+2*i], 16, 16)
		ok = ok && err == nil && addr.IsValid()
		*at = netip.AddrPortFrom(addr, uint16(port))
	}
	f.Open = f.Proto == model.TCP && ipvsStates[words[7]]
	return f, ok && f.Client.Port() != 0
}

// ipvsAddr parses an address: IPv4 as eight hexadecimal digits, IPv6 in the usual
// form.
func ipvsAddr(text string) netip.Addr {
	if b, err := hex.DecodeString(text); err == nil && len(b) == 4 {
		return netip.AddrFrom4([4]byte(b))
	}
	addr, _ := netip.ParseAddr(text) // not valid if the text is not an address
	return addr
}
