package health

import (
	"slices"

	"fairlead/internal/model"
)

// Type describes a type of check. The file of its checker declares it.
type Type struct {
	Name model.CheckType
	// Settings names the settings that the type uses, as in files, among those that
	// only some types use.
	Settings []string
	// TLS is true if the type always uses TLS. A type with the setting "tls" uses
	// TLS if that is set.
	TLS bool
	// starts is true if a check starts processes on this host.
	starts bool
	// overlaps reports whether two checks of the same server may run in parallel.
	// If nil, they may not.
	overlaps func(model.Check) bool
	// checker returns the checker for a valid check.
	checker func(model.Check, Means) (Checker, error)
}

// Types returns all types of check, in the order of model.CheckTypes.
func Types() []Type { return slices.Clone(types) }

// Uses reports whether the type uses the setting.
func (t Type) Uses(setting string) bool { return slices.Contains(t.Settings, setting) }

func typeOf(name model.CheckType) (Type, bool) {
	i := slices.IndexFunc(types, func(t Type) bool { return t.Name == name })
	if i < 0 {
		return Type{}, false
	}
	return types[i], true
}

// always is for types whose checks may always run in parallel.
func always(model.Check) bool { return true }
