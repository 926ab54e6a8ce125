package result

import "fmt"

// Family is the address family of a session's traffic: 4 or 6.
type Family int

// The families. The zero value of a Family means IPv4.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Normal returns the family with the default filled in, or an error for a number that
// is none.
func (f Family) Normal() (Family, error) {
	switch f {
	case 0, IPv4:
		return IPv4, nil
	case IPv6:
		return IPv6, nil
	}
	return f, fmt.Errorf("family %d: want 4 or 6", int(f))
}

// Is6 reports whether the family is IPv6.
func (f Family) Is6() bool { return f == IPv6 }

// String returns "IPv4" or "IPv6".
func (f Family) String() string {
	if f.Is6() {
		return "IPv6"
	}
	return "IPv4"
}
