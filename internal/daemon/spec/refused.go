package spec

import (
	"strings"

	"fairlead/internal/model"
)

// Flatten returns the errors that are joined in err.
func Flatten(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, Flatten(one)...)
	}
	return all
}

// beginOf returns the begin of an error about a publish. Its mode may have been chosen meanwhile.
func beginOf(p model.Publish) string {
	without, _, _ := strings.Cut(p.String(), " via ")
	return "publish " + without + " via "
}

// Refused returns the objects of a desired state that an error of the engine is about, and the attachments to its
// networks: the text begins with the object's name. It returns none for an error about something else.
func Refused(w model.Desired, err error) (named model.Desired) {
	begins := func(with string) bool { return strings.HasPrefix(err.Error(), with) }
	for _, n := range w.Networks {
		if begins("network " + n.Name + ": ") {
			named.Networks = append(named.Networks, n)
		}
	}
	for _, a := range w.Attachments {
		if begins("endpoint "+a.Name+": ") || begins("network "+a.Network+": ") {
			named.Attachments = append(named.Attachments, a)
		}
	}
	for _, v := range w.Services {
		if begins("service " + v.Name + ": ") {
			named.Services = append(named.Services, v)
		}
	}
	for _, p := range w.Publishes {
		if begins(beginOf(p)) {
			named.Publishes = append(named.Publishes, p)
		}
	}
	return named
}
