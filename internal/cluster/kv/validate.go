package kv

import "fmt"

// The limits of a transaction. They are those of an etcd with its defaults (--max-txn-ops,
// --max-request-bytes), less some room for the names of keys and the protocol.
const (
	MaxOperations = 128
	MaxBytes      = 1 << 20
)

// Validate returns an error if a store cannot commit the transaction. A condition with a value counts
// twice.
func (t Txn) Validate() error {
	compared := len(t.If)
	for _, c := range t.If {
		if c.Value != nil {
			compared++
		}
	}
	if n := max(compared, len(t.Then)); n > MaxOperations {
		return fmt.Errorf("commit transaction: it has %d conditions or changes, and etcd accepts %d: divide it", n,
			MaxOperations)
	}
	size := 0
	changed := map[string]bool{}
	for _, c := range t.Then {
		size += len(c.Key) + len(c.Value)
		switch {
		case c.Key == "":
			return fmt.Errorf("commit transaction: a change has no key")
		case changed[c.Key]:
			return fmt.Errorf("commit transaction: it changes %s twice", c.Key)
		}
		changed[c.Key] = true
	}
	for _, c := range t.If {
		size += len(c.Key) + len(c.Value)
		if c.Key == "" {
			return fmt.Errorf("commit transaction: a condition has no key")
		}
	}
	if size > MaxBytes {
		return fmt.Errorf("commit transaction: it has %d bytes, and etcd accepts %d: divide it", size, MaxBytes)
	}
	return nil
}
