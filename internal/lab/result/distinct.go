package result

import "slices"

// Distinct returns what of returns for the values, each once and in their order.
func Distinct[T any, K comparable](values []T, of func(T) K) []K {
	var all []K
	for _, v := range values {
		if k := of(v); !slices.Contains(all, k) {
			all = append(all, k)
		}
	}
	return all
}
