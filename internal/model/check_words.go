package model

import (
	"fmt"
	"slices"
	"strings"
)

// DNSRecords are the record types that a check can ask for.
var DNSRecords = []string{"A", "AAAA", "CNAME", "MX", "NS", "PTR", "SOA", "SRV", "TXT"}

// validateWords verifies that words that a check sends to a server contain nothing
// that would change the request around them.
func (c Check) validateWords() error {
	for _, w := range []struct{ name, word string }{{"method", c.Method}, {"path", c.Path}, {"host", c.Host},
		{"TLS name", c.TLSName}, {"query", c.Query}} {
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
