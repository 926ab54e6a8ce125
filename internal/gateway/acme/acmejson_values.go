package acme

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// resolverData is what acme.json has by resolver.
type resolverData struct {
	Account      json.RawMessage
	Certificates []entry
	Attempts     map[string]json.RawMessage `json:",omitempty"`
	// Sums are the checksums of the values by kind and identifier. Traefik does not keep them when it
	// writes the file.
	Sums map[string]string `json:",omitempty"`
}

// entry is a certificate with its identifier.
type entry struct {
	id  string
	raw json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *entry) UnmarshalJSON(raw []byte) error {
	var c stored
	if err := json.Unmarshal(raw, &c); err != nil {
		return err
	}
	e.id, e.raw = c.id(), bytes.Clone(raw)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (e entry) MarshalJSON() ([]byte, error) { return e.raw, nil }

// values calls f with each value of a resolver and its name among the sums.
func (d *resolverData) values(f func(name string, value json.RawMessage)) {
	if len(d.Account) > 0 && string(d.Account) != "null" {
		f(accountKind, d.Account)
	}
	seen := map[string]int{}
	for _, e := range d.Certificates {
		name := certificateKind + "/" + e.id
		if seen[e.id]++; seen[e.id] > 1 { // Traefik would have replaced it
			name += fmt.Sprint("#", seen[e.id])
		}
		f(name, e.raw)
	}
	for id, value := range d.Attempts {
		f(attemptKind+"/"+id, value)
	}
}

// sums returns the checksums of the values of a resolver.
func (d *resolverData) sums(resolver string) map[string]string {
	all := map[string]string{}
	d.values(func(name string, value json.RawMessage) { all[name] = sumOf(resolver, name, value) })
	return all
}

// sumOf returns the checksum of a value, whatever its spaces and the order of its names.
func sumOf(resolver, name string, value json.RawMessage) string {
	var content any
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	err := d.Decode(&content)
	text, failed := json.Marshal([]any{resolver, name, content})
	if errors.Join(err, failed) != nil {
		return "" // not JSON; the file cannot be written
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// verify returns an error if a value differs from what the gateway has written. A value without a checksum is a
// damage if the resolver has checksums, and so is an unknown name in a file with checksums. A file that Traefik has
// written has none. A checksum without a value is none: users delete certificates from the file.
func verify(text []byte, all map[string]*resolverData) error {
	summed := false
	for resolver, d := range all {
		if d == nil || d.Sums == nil {
			continue
		}
		summed = true
		for name, sum := range d.sums(resolver) {
			if d.Sums[name] != sum {
				return fmt.Errorf("the checksum of %s of the resolver %q is wrong", name, resolver)
			}
		}
	}
	if !summed {
		return nil
	}
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	return strict.Decode(&map[string]*resolverData{})
}
