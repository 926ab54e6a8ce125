package rule

import "strings"

// queryV3 needs a parameter with the value; without a value, an empty parameter.
func queryV3(args []string) ([]test, error) {
	text := ""
	if len(args) == 2 {
		text = args[1]
	}
	return []test{{subject: ofQuery, key: args[0], values: []value{{how: equal, text: text}}}}, nil
}

func queryRegexp(args []string) ([]test, error) {
	if len(args) == 1 {
		return queryV3(args)
	}
	v, err := regexpValue(1, args[1])
	return []test{{subject: ofQuery, key: args[0], values: []value{v}}}, err
}

// queryV2 needs all parameters: NAME=VALUE, or NAME and VALUE as two arguments. An empty
// value means any; a value may have templates, which match the parameter's first value.
func queryV2(args []string) ([]test, error) {
	var tests []test
	for i := 0; i < len(args); i++ {
		key, text, ok := strings.Cut(args[i], "=")
		if !ok {
			if i++; i == len(args) || strings.Contains(args[i], "=") {
				return nil, badArgument(i-1, "%q has no value: write `%[1]s=VALUE`, or `%[1]s=` for any value", key)
			}
			text = args[i]
		}
		v, err := templateValue(i, text, ".*", equal)
		if err != nil {
			return nil, err
		}
		if text == "" {
			v = value{how: always}
		}
		tests = append(tests, test{subject: ofFirstQuery, key: key, values: []value{v}})
	}
	return tests, nil
}
