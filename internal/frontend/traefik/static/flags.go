package static

import (
	"fmt"
	"reflect"
	"strings"

	"fairlead/internal/frontend/traefik/tree"
)

// flags returns the settings of a command line. A flag begins with one or two dashes, and
// its name ignores case. Its value follows an equals sign or is the next word; a flag of a
// bool or of a part, such as --api, is true if it stands alone.
func flags(args []string) ([]tree.Pair, error) {
	var pairs []tree.Pair
	if len(args) > 0 && args[0] == "traefik" {
		args = args[1:]
	}
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		text, isFlag := strings.CutPrefix(word, "-")
		text = strings.TrimPrefix(text, "-")
		name, v, hasValue := strings.Cut(text, "=")
		if !isFlag || name == "" {
			return nil, fmt.Errorf("read the command line: unexpected word %q: want --NAME=VALUE", word)
		}
		if !hasValue {
			next := len(args) > 0 && (takesValue(name) || mayTakeValue(name) && !strings.HasPrefix(args[0], "-"))
			switch {
			case next:
				v, args = args[0], args[1:]
			case takesValue(name):
				return nil, fmt.Errorf("read the command line: %s has no value: want %s=VALUE", word, word)
			default:
				v = "true"
			}
		}
		pairs = append(pairs, tree.Pair{Key: name, Value: v})
	}
	return pairs, nil
}

// takesValue reports whether a flag is known and cannot stand alone.
func takesValue(name string) bool {
	names, err := tree.Split(name)
	if err != nil || findIgnored(names) != nil {
		return false
	}
	t := settingType(names)
	return t != nil && t.Kind() != reflect.Bool && t.Kind() != reflect.Struct
}

// mayTakeValue reports whether a flag is not known, or has no effect: the next word is
// its value if it is no flag.
func mayTakeValue(name string) bool {
	names, err := tree.Split(name)
	return err != nil || findIgnored(names) != nil || settingType(names) == nil
}

// settingType returns the type of a setting, or of what a pointer to it points to. It
// returns nil for an unknown setting.
func settingType(names []string) reflect.Type {
	t := reflect.TypeFor[allSettings]()
	for _, name := range names {
		switch {
		case t.Kind() == reflect.Map, t.Kind() == reflect.Slice && strings.HasPrefix(name, "["):
			t = t.Elem()
		case t.Kind() == reflect.Struct:
			f, ok := t.FieldByNameFunc(func(field string) bool { return strings.EqualFold(field, name) })
			if !ok {
				return nil
			}
			t = f.Type
		default:
			return nil
		}
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	return t
}
