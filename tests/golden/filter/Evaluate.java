import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

/** Asks Apache's own filter: for each expression one letter a property set, T, F, N (unknown) or X (it threw); or "refused". */
public class Evaluate {
    public static void main(String[] arguments) throws Exception {
        JSONObject input = JSON.parseObject(Files.readString(Path.of(arguments[0]), StandardCharsets.UTF_8));
        List<Map<String, String>> sets = new ArrayList<>();
        JSONArray given = input.getJSONArray("properties");
        for (int i = 0; i < given.size(); i++) {
            Map<String, String> set = new HashMap<>();
            JSONObject one = given.getJSONObject(i);
            one.keySet().forEach(name -> set.put(name, one.getString(name)));
            sets.add(set);
        }
        List<String> answers = new ArrayList<>();
        for (Object expression : input.getJSONArray("expressions")) {
            answers.add(answer((String) expression, sets));
        }
        Files.writeString(Path.of(arguments[1]), JSON.toJSONString(answers), StandardCharsets.UTF_8);
    }

    static String answer(String text, List<Map<String, String>> sets) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (MQFilterException refused) {
            return "refused";
        }
        StringBuilder letters = new StringBuilder();
        for (Map<String, String> set : sets) {
            try {
                Object value = expression.evaluate(new MessageEvaluationContext(set));
                letters.append(value == null ? 'N' : value == Boolean.TRUE ? 'T' : value == Boolean.FALSE ? 'F' : '?');
            } catch (Throwable thrown) {
                letters.append('X');
            }
        }
        return letters.toString();
    }
}
