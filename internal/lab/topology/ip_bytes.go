package topology

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ReadIPv6Bytes returns the bytes that the calling thread's network namespace has
// received and sent in IPv6 packets, headers included, added up (RFC 4293,
// ipSystemStatsInOctets and ipSystemStatsOutOctets).
func ReadIPv6Bytes() (sum uint64, err error) {
	text, err := os.ReadFile("/proc/thread-self/net/snmp6")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 2 || f[0] != "Ip6InOctets" && f[0] != "Ip6OutOctets" {
			continue
		}
		v, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the counter %s: %w", f[0], err)
		}
		sum += v
	}
	return sum, nil
}
