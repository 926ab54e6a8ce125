package dns

import (
	"context"
	"os"
	"strings"
	"time"

	protocol "github.com/mholt/acmez/v3/acme"
)

// operator changes the records of DNS zones.
type operator interface {
	// add adds a TXT record for the challenge, remove removes it. fqdn and zone end with a dot.
	add(ctx context.Context, zone, fqdn, value string, c protocol.Challenge) error
	remove(ctx context.Context, zone, fqdn, value string, c protocol.Challenge) error
	// patience is how long the record may take until name servers have it.
	patience() time.Duration
}

// Variable returns the value of a variable of the environment, or the content of the file
// that the variable with _FILE names, as the library does.
func Variable(name string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	path := os.Getenv(name + "_FILE")
	if path == "" {
		return ""
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(text), "\n")
}
