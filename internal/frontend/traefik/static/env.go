package static

import (
	"reflect"
	"strconv"
	"strings"

	"fairlead/internal/frontend/traefik/tree"
)

const envPrefix = "TRAEFIK_"

// variables returns the settings of the variables TRAEFIK_A_B, without that of the file.
// Names of entry points and resolvers are in lower case, as in Traefik. Variables that begin
// with no setting's name, such as those of images and of links between containers, are in
// the notes.
func variables(env []string) (pairs []tree.Pair, notes []Note) {
	for _, variable := range env {
		name, v, _ := strings.Cut(variable, "=")
		if len(name) <= len(envPrefix) || !strings.EqualFold(name[:len(envPrefix)], envPrefix) ||
			strings.EqualFold(name, configFileVariable) {
			continue
		}
		names := strings.Split(strings.ToLower(name[len(envPrefix):]), "_")
		if settingType(names[:1]) == nil && !isIgnoredRoot(names[0]) {
			notes = append(notes, Note{name, "has no effect: it is no setting of Traefik"})
			continue
		}
		pairs = append(pairs, tree.Pair{Key: variableKey(names), Value: v})
	}
	return pairs, notes
}

// variableKey joins names with dots. A number below a list is an index.
func variableKey(names []string) string {
	key := names[0]
	for i, name := range names[1:] {
		above, _ := tree.Split(key)
		if t := settingType(above); t != nil && t.Kind() == reflect.Slice {
			if _, err := strconv.Atoi(name); err == nil {
				key += "[" + name + "]"
				continue
			}
		}
		key = tree.Join(key, names[i+1])
	}
	return key
}

// isIgnoredRoot reports whether an ignored setting begins with the name.
func isIgnoredRoot(name string) bool {
	for _, s := range ignoredSettings {
		if root, _, _ := strings.Cut(s.path, "."); root == name {
			return true
		}
	}
	return false
}

func variableName(key string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "[", "_", "]", "").Replace(key))
}

// lookup returns the value of a variable, or "".
func lookup(env []string, name string) string {
	found := ""
	for _, variable := range env {
		if n, v, _ := strings.Cut(variable, "="); n == name {
			found = v
		}
	}
	return found
}
