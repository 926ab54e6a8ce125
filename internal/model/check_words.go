package model

import (
	"fmt"
	"slices"
	"strings"
)

// DNSRecords are the types of records that a check can ask for.
var DNSRecords = []string{"A", "AAAA", "CNAME", "MX", "NS", "PTR", "SOA", "SRV", "TXT"}

// validateWords checks what a check sends to a server: none of it may be more
// than the one word that it is meant to be.
func (c Check) validateWords() error {
	for _, w := range []struct{ name, word string }{{"method", c.Method}, {"path", c.Path}, {"host", c.Host}, {"TLS name", c.TLSName}, {"query", c.Query}} {
		if strings.ContainsFunc(w.word, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return fmt.Errorf("check: %s %q: want ASCII without spaces", w.name, w.word)
		}
	}
	if c.Path != "" && !strings.HasPrefix(c.Path, "/") {
		return fmt.Errorf("check: path %q: want one that begins with /", c.Path)
	}
	if c.Record != "" && !slices.Contains(DNSRecords, strings.ToUpper(c.Record)) {
		return fmt.Errorf("check: record %q: want %s", c.Record, strings.Join(DNSRecords, ", "))
	}
	return nil
}
