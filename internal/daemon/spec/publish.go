package spec

import (
	"slices"

	"fairlead/internal/model"
)

// Publish adds publishes to those of an attachment. One that exists keeps its origin if
// it does not change.
func Publish(w model.Desired, attachment string, publishes []model.Publish) model.Desired {
	if len(publishes) == 0 {
		return w
	}
	have := w.PublishesOf(attachment)
	var added []model.Publish
	for _, p := range publishes {
		p.Endpoint = attachment
		asked := p
		i := slices.IndexFunc(have, p.Same)
		if i >= 0 {
			asked.Origin = have[i].Origin
		}
		if i >= 0 && asked.Equal(have[i]) {
			p = have[i] // its origin stays
		}
		added = append(slices.DeleteFunc(added, p.Same), p)
	}
	return w.ReplacePublishes(attachment, Among(added), added)
}

// Unpublish restores the publishes of an attachment that Publish has added or replaced.
func Unpublish(w, before model.Desired, attachment string, publishes []model.Publish) model.Desired {
	had := slices.DeleteFunc(before.PublishesOf(attachment), func(p model.Publish) bool { return !Among(publishes)(p) })
	return w.ReplacePublishes(attachment, Among(publishes), had)
}

// Among returns a function that reports whether a publish has the host side of one of
// these.
func Among(publishes []model.Publish) func(model.Publish) bool {
	return func(p model.Publish) bool { return slices.ContainsFunc(publishes, p.Same) }
}

// KeepsDeclared returns an error if a request changes or removes a publish that files
// declare.
func KeepsDeclared(have, next []model.Publish) error {
	for _, p := range have {
		if p.Origin.IsFile() && !slices.ContainsFunc(next, p.Equal) {
			return OtherOrigin("publish "+p.String(), p.Origin)
		}
	}
	return nil
}
