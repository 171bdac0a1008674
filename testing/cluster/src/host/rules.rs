//! The rules of the packet filter, as `nft` lists them.

use std::collections::BTreeSet;

/// Each table, chain and set, and each line in it, with the names of what it is in.
pub(super) fn of(ruleset: &str) -> BTreeSet<String> {
    let (mut within, mut found) = (Vec::new(), BTreeSet::new());
    for line in ruleset.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line == "}" {
            within.pop();
            continue;
        }
        let name = line.trim_end_matches('{').trim_end();
        within.push(name);
        found.insert(within.join(" / "));
        if name == line {
            within.pop(); // nothing is in it
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_has_the_names_of_its_chain_and_its_table() {
        let ruleset = "table ip nat {\n\tchain POSTROUTING {\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n\t\t\
                       masquerade\n\t}\n\n\tset pods {\n\t\telements = { 10.0.0.1,\n\t\t\t     10.0.0.2 }\n\t}\n}\n\
                       table ip6 nat {\n}\n";
        let expected = [
            "table ip nat",
            "table ip nat / chain POSTROUTING",
            "table ip nat / chain POSTROUTING / masquerade",
            "table ip nat / chain POSTROUTING / type nat hook postrouting priority srcnat; policy accept;",
            "table ip nat / set pods",
            "table ip nat / set pods / 10.0.0.2 }",
            "table ip nat / set pods / elements = { 10.0.0.1,",
            "table ip6 nat",
        ];
        assert_eq!(of(ruleset).into_iter().collect::<Vec<_>>(), expected);
        assert!(of("").is_empty());
    }
}
